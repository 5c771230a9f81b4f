"""The objective f(S), its gains and its losses, computed from statistics of the data."""
