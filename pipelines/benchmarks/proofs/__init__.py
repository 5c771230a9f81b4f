"""The proofs of dsel compared with those of other exact solvers, on the same problems in one run."""
