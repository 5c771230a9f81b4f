"""Check proof logs against the data, without any code of the search."""
