"""Several searches in one: they share the best subsets that they find, and a proof says how good these are."""
