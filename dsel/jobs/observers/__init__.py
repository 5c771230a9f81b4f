"""Where the events of a job can go: a file, OpenTelemetry, MLflow, and what other packages add."""
