"""How the Gram matrix can be held: one class per representation."""
