"""Stores that grow: rows are appended while others read."""
