"""Where workers come from, one kind of cluster a file."""
