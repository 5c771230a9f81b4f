"""Errors on rows that are left out: formulas and compiled loops."""
