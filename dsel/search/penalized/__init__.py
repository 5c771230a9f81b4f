"""Penalized regression: the supports along a path of penalties, refitted without the penalty."""
