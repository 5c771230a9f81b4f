"""Dask settings for clusters that dsel starts, and the lines that Dask logs as lines of dsel at debug level.

A run logs what matters to its owner itself, such as lost workers. Dask logs the same events several times, with
tracebacks, in a separate format. Warnings about memory stay warnings.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

#: Workers spill before the limit, and pause late.
WORKER = {
    "distributed.worker.memory.target": 0.7,
    "distributed.worker.memory.spill": 0.8,
    "distributed.worker.memory.pause": 0.9,
}
#: Scheduler and client.
SCHEDULER = {"distributed.scheduler.worker-saturation": 1.0, "distributed.admin.large-graph-warning-threshold": "100MB"}
#: The nanny of a local worker starts it again when it dies. By default the cluster closes the nanny if that takes more
#: than 15 seconds. On a busy machine the cluster would then have one worker fewer. The statistical profile takes time
#: from workers that use all cores.
LOCAL = {"distributed.deploy.lost-worker-timeout": "1 day", "distributed.worker.profile.enabled": False}


@contextmanager
def applied(settings: Mapping[str, Any]) -> Iterator[None]:
    """Apply settings in a context.

    distributed is imported before: an import in the context would lose the defaults of distributed at its end.
    """
    import dask
    import distributed  # noqa: F401

    with dask.config.set(settings):
        yield


def worker_environment() -> dict[str, str]:
    """Return the workers' settings as environment variables, for workers that this process does not start."""
    return {f"DASK_{name.replace('.', '__').replace('-', '_').upper()}": str(value) for name, value in WORKER.items()}


log = logging.getLogger("dsel")

#: Loggers of Dask and of what it is built on. Dask's configuration gives some of them handlers.
_LOGGERS = ("distributed", "distributed.client", "bokeh", "tornado", "tornado.application", "asyncio", "py.warnings")
#: Warnings that tell the owner of a run what to change.
_IMPORTANT = ("distributed.worker.memory", "distributed.nanny.memory", "distributed.worker_memory", "py.warnings")


class _AsDsel(logging.Handler):
    """Pass records on to the logger of dsel."""

    def emit(self, record: logging.LogRecord) -> None:
        matters = record.levelno >= logging.WARNING and record.name in _IMPORTANT
        level = logging.WARNING if matters else logging.DEBUG
        if log.isEnabledFor(level):
            trace = None if matters else record.exc_info
            text = " ".join(record.getMessage().split()) if matters else record.getMessage()
            log.handle(log.makeRecord(record.name, level, record.pathname, record.lineno, text, (), trace))


@contextmanager
def dask_logging() -> Iterator[None]:
    """Take over the loggers of Dask and Python's warnings during the block."""
    import distributed  # noqa: F401  (it gives its loggers their handlers)

    handler = _AsDsel()
    before = []
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        before.append((logger, logger.handlers[:], logger.propagate))
        logger.handlers[:], logger.propagate = [handler], False
    logging.captureWarnings(True)
    try:
        yield
    finally:
        logging.captureWarnings(False)
        for logger, handlers, propagate in before:
            logger.handlers[:], logger.propagate = handlers, propagate
