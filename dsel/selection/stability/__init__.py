"""Stability selection: how often each column is chosen on subsamples of the rows."""
