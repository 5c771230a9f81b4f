"""One run in one folder: from a job file to a saved result, interrupted and resumed."""
