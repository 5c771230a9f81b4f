"""Best-first search over subsets (A*), and the reduced problem of its bounds."""
