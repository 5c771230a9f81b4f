"""Pareto optimization: POSS and POCSS."""
