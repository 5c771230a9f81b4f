"""Passes over blocks of columns, for wide data."""
