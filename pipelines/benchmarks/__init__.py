"""Benchmarks: how fast and how good, beside plain programs and other packages."""
