"""Losses other than the squared error: one file each, and the registry."""
