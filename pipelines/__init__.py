"""Programs that use `dsel` from outside: the papers' tables and the benchmarks."""
