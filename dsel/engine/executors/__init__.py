"""How a search's tasks reach the workers."""
