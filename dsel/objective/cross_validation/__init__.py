"""Errors on rows that are left out, by formulas and compiled loops."""
