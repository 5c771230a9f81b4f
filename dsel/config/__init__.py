"""What may be asked: models of requests, jobs and clusters, validated without data."""
