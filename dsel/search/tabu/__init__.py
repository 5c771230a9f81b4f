"""Tabu search by swaps: replace one column by another, with tables of the outcome of every swap."""
