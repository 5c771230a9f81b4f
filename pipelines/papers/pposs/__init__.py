"""Qian et al., "Parallel Pareto optimization for subset selection", IJCAI 2016."""
