"""The order of a selection, and its result."""
