"""The compiled parts of the objective."""
