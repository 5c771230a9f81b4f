"""Kill jobs at random moments, again and again, and check that nothing is lost, left behind or changed."""
