"""Wan, Schweitzer, "Heuristic search algorithms for approximating one matrix in terms of another matrix", AAAI 2021."""
