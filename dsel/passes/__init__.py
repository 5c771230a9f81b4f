"""Passes over data that may be larger than memory, and what they leave."""
