"""Branch and bound by convex relaxation, for one target and many columns."""
