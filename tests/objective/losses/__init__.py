"""Losses other than the squared error."""
