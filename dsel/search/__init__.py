"""The search algorithms: nothing here reads data."""
