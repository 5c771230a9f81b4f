"""Files and object storage: paths, locks, retries, logs."""
