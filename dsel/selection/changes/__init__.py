"""What changed since the previous run of a job."""
