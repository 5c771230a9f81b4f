"""Greedy searches by errors on left-out rows."""
