"""Build and check the documentation: python -m pipelines.docs."""
