"""Compare proved bounds with the errors of subsets, recomputed from random data by QR."""
