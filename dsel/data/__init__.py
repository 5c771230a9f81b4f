"""What a data set is on disk, how it gets there, and any data as row blocks."""
