"""Benchmarks of speed and quality, compared with plain NumPy programs and other packages."""
