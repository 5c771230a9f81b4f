"""Exact and bounded search: branch and bound, A*, and their bounds."""
