"""Runnable jobs that use `dsel` as anyone would: the papers' tables, benchmarks, examples."""
