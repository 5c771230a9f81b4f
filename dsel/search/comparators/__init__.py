"""Methods that the papers compare with: samples, factorizations, elimination by coefficients, exhaustive search."""
