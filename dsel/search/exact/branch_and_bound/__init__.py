"""Branch and bound over subsets: the search, its compiled kernel, and its bounds."""
