"""Qian, Yu, Zhou, "Subset selection by Pareto optimization", NIPS 2015."""
