"""Rounds of leave-one-out errors over the rows of the data."""
