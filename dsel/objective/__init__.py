"""f(S), its gains and its losses: pure mathematics on statistics of the data."""
