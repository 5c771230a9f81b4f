"""What a user does with a result: predict, transform, export, compare."""
