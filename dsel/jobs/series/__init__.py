"""Repeated jobs on data that grow: a folder for each run."""
