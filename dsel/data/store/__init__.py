"""The Zarr store: reading, writing, staging, sparse data."""
