"""The algorithms, one a file, on an objective or a criterion: nothing here reads data."""
