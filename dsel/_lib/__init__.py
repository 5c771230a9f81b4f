"""Helpers for every layer: compilation, BLAS threads, random numbers, array types, versions."""
