"""Searches for groups of columns that enter and leave together."""
