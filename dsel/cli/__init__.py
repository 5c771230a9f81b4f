"""The command line: it parses arguments, calls the library, and prints the answer."""

from dsel.cli import (  # noqa: F401  (they register their commands)
    append,
    eigh,
    history,
    ingest,
    jobs,
    report,
    results,
    stability,
    stores,
    tls,
    use,
    verification,
    warm,
)
from dsel.cli.application import app, main

__all__ = ["app", "main"]
