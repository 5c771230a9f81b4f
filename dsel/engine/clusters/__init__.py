"""Clusters: where workers come from, one file per kind."""
