"""What a selection will take, before it runs."""
