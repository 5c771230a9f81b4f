"""Jobs that run again and again on data that grow: a folder for each run."""
