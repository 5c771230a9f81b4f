"""Pahikkala, Airola, Salakoski, "Linear time feature selection for regularized least-squares", 2010."""
