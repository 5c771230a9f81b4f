"""Feng, Qian, Tang, "Unsupervised feature selection by Pareto optimization", AAAI 2019."""
