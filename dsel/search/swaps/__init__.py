"""Tabu search by swaps: replace one column by another, with the outcome of every swap at hand."""
