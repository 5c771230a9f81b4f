"""The kinds of observers that `--events` names, and the observers of one run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from dsel._lib.events import Observer, observing
from dsel._lib.plugins import Registry
from dsel._lib.text import suggest
from dsel.errors import OptionError
from dsel.jobs.observers.jsonl import open_jsonl
from dsel.jobs.observers.mlflow import open_mlflow
from dsel.jobs.observers.opentelemetry import open_opentelemetry
from dsel.storage.paths import AnyPath


@dataclass(frozen=True)
class ObserverKind:
    """A kind of observers.

    Parameters
    ----------
    name : str
        What `--events` calls it.
    summary : str
        What it does, in one sentence.
    open : callable
        Called as ``open(folder, run)`` with the folder of the run and its id. It returns an `Observer`. It raises
        MissingExtraError if a package is missing, and does not wait for a server.
    """

    name: str
    summary: str
    open: Callable[[AnyPath, str], Observer]


OBSERVERS: Registry[ObserverKind] = Registry(
    "observer", ObserverKind, "dsel.observers",
    [
        ObserverKind("jsonl", "Appends each event to events.jsonl in the folder of the result.", open_jsonl),
        ObserverKind("otel", "Sends one OpenTelemetry trace, with a span for each stage and pass.", open_opentelemetry),
        ObserverKind("mlflow", "Writes one MLflow run, with parameters, figures, front and report.", open_mlflow),
    ],
)  # fmt: skip


@contextmanager
def observed(names: Sequence[str], folder: AnyPath, run: str) -> Iterator[None]:
    """Tell these observers of the events in the block. Errors: OptionError for a name that there is not."""
    with ExitStack() as stack:
        for name in dict.fromkeys(names):
            if name not in OBSERVERS:
                raise OptionError(f"events is {name!r}.", suggest(name, OBSERVERS))
            stack.enter_context(observing(OBSERVERS[name].open(folder, run), name))
        yield
