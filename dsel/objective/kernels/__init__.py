"""Compiled functions on the tables of subsets."""
