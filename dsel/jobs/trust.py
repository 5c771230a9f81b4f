"""Whether to run code that a saved job names. The folder of a result may have been written by somebody else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from dsel.config.import_path import guarding_imports
from dsel.config.job import JobFile
from dsel.errors import OptionError
from dsel.jobs.run_folder import MANIFEST
from dsel.storage.owners import foreign_owner
from dsel.storage.paths import AnyPath


@contextmanager
def trusting(folder: AnyPath, trust: bool) -> Iterator[None]:
    """Import no function that the job in `folder` names if the folder or its job file belongs to another user.

    The import then raises OptionError. With `trust`, everything is imported.
    """

    def refuse(function: str) -> None:
        raise _untrusted(folder, owner, f"names {function}, whose module would run with your rights")

    owner = None if trust else _owner(folder)
    if owner is None:
        yield
        return
    with guarding_imports(refuse):
        yield


def require_trusted_cluster(folder: AnyPath, job: JobFile, trust: bool) -> None:
    """Raise OptionError if the job of another user names a cluster: its scheduler, image or commands are code, too."""
    kind = job.cluster.chosen.kind
    owner = None if trust or kind == "local" else _owner(folder)
    if owner is not None:
        raise _untrusted(folder, owner, f"names a cluster ({kind}), which would run with your rights")


def _owner(folder: AnyPath) -> str | None:
    return foreign_owner(folder) or foreign_owner(folder / MANIFEST)


def _untrusted(folder: AnyPath, owner: str | None, what: str) -> OptionError:
    return OptionError(
        f"{folder / MANIFEST} belongs to {owner}. It {what}.",
        "Read the file, and add --trust (in Python: trust=True) if you trust its owner.",
    )
