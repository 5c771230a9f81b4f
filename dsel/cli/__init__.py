"""The command line: it parses arguments, calls the library, and prints the answer."""

from dsel.cli import jobs, machine, results, stores  # noqa: F401  (they register their commands)
from dsel.cli.application import app, main

__all__ = ["app", "main"]
