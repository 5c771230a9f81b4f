"""Kill jobs at many random moments, and check that nothing is lost, left behind or changed."""
