"""Branch and bound by convex relaxation, for many columns."""
