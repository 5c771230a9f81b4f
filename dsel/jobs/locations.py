"""Where a job reads and writes, what identifies its work, and whether its result is there already.

A result that is there is found in a second: nothing is imported that only a run needs. The folder of a result may have
been written by somebody else, whose code is run only if the caller trusts it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from dsel.config.import_path import guarding_imports
from dsel.config.job import JobFile, RunSeries
from dsel.config.request import SelectionRequest
from dsel.data.dataset import Dataset
from dsel.data.requested import dataset_of
from dsel.data.store.reader import Store
from dsel.errors import DataError, OptionError, OutputError
from dsel.jobs.reporting import Reporter, output_errors
from dsel.jobs.run_folder import MANIFEST, RunFolder, RunFolders, proof_logs
from dsel.jobs.same_work import is_same_work
from dsel.search.exact.certificate import NOTHING
from dsel.selection.changes.runs import is_series
from dsel.selection.result import Selection
from dsel.storage.locks import is_free
from dsel.storage.object_store import listed_once
from dsel.storage.paths import AnyPath, ObjectPath, RepositoryPath, foreign_owner, is_inside, latest_name

if TYPE_CHECKING:
    from dsel.passes.statistics_cache import StatisticsCache

log = logging.getLogger("dsel")


def as_selected(request: SelectionRequest, selection: Selection) -> SelectionRequest:
    """Return the request with the groups of the selection, also where categories made them."""
    return request.model_copy(update={"groups": selection.request.groups, "categories": "columns"})


def job_dataset(job: JobFile) -> Dataset:
    """Return the dataset of a job. Only labels are read.

    Raises
    ------
    MissingInputError, DataError, OptionError
        The store cannot be used, or has no such targets or weights.
    """
    with listed_once(job.data_folder):
        dataset = dataset_of(job, str(job.store))
        if isinstance(dataset.store, Store) and isinstance(dataset.store.path, ObjectPath):
            _ = dataset.fingerprint, dataset.store.segments  # both are kept: the same listing answers
    return dataset


def pinned(job: JobFile) -> JobFile:
    """Return the job with the snapshot that the branch or tag of its repository names now; others as they are."""
    if not isinstance(job.store, RepositoryPath):
        return job
    from dsel.data.icechunk_snapshot import open_snapshot

    return job.model_copy(update={"store": RepositoryPath.from_url(open_snapshot(str(job.store)).name)})


def unchanged_dataset(job: JobFile, identity: dict[str, Any], folder: AnyPath) -> Dataset:
    """Return the dataset of the job in `folder`, or raise DataError if the store was written to since."""
    dataset = job_dataset(job)
    if dataset.fingerprint != identity["fingerprint"]:
        raise DataError(
            f"The store {job.store} was written to since {folder} was made.",
            "Run the job again: each run gets its own folder." if is_series(folder.absolute().parent) else
            "Run the job again in another folder (--out), or with out: {folder: runs}, where each run gets its own.",
        )  # fmt: skip
    return dataset


def out_folder(job: JobFile) -> AnyPath:
    """Return the folder of the result; of a repeated job, that of all runs."""
    assert job.out is not None
    return job.out.folder if isinstance(job.out, RunSeries) else job.out


def identity_of(job: JobFile, dataset: Dataset) -> dict[str, Any]:
    """Return everything that the result depends on: what was asked, and the data's fingerprints."""
    identity = {"job": job.identity(), "fingerprint": dataset.fingerprint}
    held_out = job.options.get("held_out")
    if job.choose_k is not None and held_out is None:
        held_out = job.choose_k.held_out
    if isinstance(held_out, str):
        from dsel.passes.cross_validation.held_out import held_out_store

        identity["held_out"] = held_out_store(dataset, held_out).fingerprint
    return identity


def with_previous(identity: dict[str, Any], run: str | None) -> dict[str, Any]:
    """Return the identity of a result that is compared with that of another run."""
    return identity if run is None else {**identity, "previous": run}


def require_separate(job: JobFile) -> None:
    """Refuse a job that would write into the store that it reads, or to a file, with an OutputError."""
    out = out_folder(job)
    for name, place in (("out", out), ("statistics_folder", job.statistics_folder)):
        if place is not None and is_inside(place, job.data_folder):
            raise OutputError(f"{name} ({place}) lies inside the store {job.store}.", "Choose a folder outside it.")
        if isinstance(place, Path):
            there = next((parent for parent in (place, *place.parents) if parent.exists()), place)
            if there.exists() and not there.is_dir():
                raise OutputError(f"{name} ({place}) cannot be a folder: {there} is a file.", "Choose another place.")
    if is_inside(job.data_folder, out / "selection.zarr"):
        raise OutputError(f"The result in {out} would replace the store {job.store}.", "Choose another out.")


def require_writable(folder: AnyPath) -> None:
    """Raise OutputError if a folder on disk cannot be made or written, by making a folder there for a moment."""
    if isinstance(folder, Path):
        there = next(parent for parent in (folder.absolute(), *folder.absolute().parents) if parent.exists())
        with (
            output_errors(f"The result folder {folder} cannot be written", "Choose another --out."),
            TemporaryDirectory(dir=there),
        ):
            pass


def statistics_cache(job: JobFile) -> StatisticsCache:
    """Return the cache of statistics: where the job says, else next to the store, else in `out`."""
    from dsel.passes.statistics_cache import StatisticsCache

    out = out_folder(job)
    if job.statistics_folder is not None:
        return StatisticsCache(job.statistics_folder)
    sibling = job.data_folder.with_name(job.data_folder.name + ".artefacts")
    if isinstance(sibling, ObjectPath):  # buckets of data are often read-only
        bucket = (sibling.scheme, sibling.bucket)
        writable = isinstance(out, ObjectPath) and (out.scheme, out.bucket) == bucket
    else:
        writable = os.access(sibling if sibling.exists() else sibling.parent, os.W_OK)
    return StatisticsCache(sibling if writable else out / "artefacts")


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


def finished_job(job: JobFile, reporter: Reporter) -> Selection | None:
    """Return the result of a job on unchanged data, or None if there is something to do.

    Parameters
    ----------
    job : JobFile
        The job.
    reporter : Reporter
        It shows that there is nothing to do.

    Notes
    -----
    Reads no values of X and Y. The folder is locked only where a killed run has left something to remove.
    """
    if job.out is None:
        return None
    job, folder = pinned(job), RunFolder(out_folder(job))
    if isinstance(job.out, RunSeries):
        runs = RunFolders(job.out.folder)
        name = runs.latest()
        settled = name is not None and runs.unfinished() is None and latest_name(job.out.folder) == name
        if name is None or not settled or not is_free(job.out.folder):
            return None  # the last one may have been killed before it set the pointer or freed the lock
        folder = RunFolder(job.out.folder / name)
    manifest = folder.read_manifest()
    is_there = isinstance(job.store, RepositoryPath) or job.store.exists()
    if manifest is None or not is_there:  # then the run says what is wrong
        return None
    identity = manifest["identity"]
    if not is_same_work({"job": identity["job"]}, {"job": job.identity()}):
        return None
    saved = folder.finished(identity)
    if saved is None or not is_complete(job, folder, saved):
        return None  # before the store is opened: the run opens it
    previous = identity.get("previous") if isinstance(job.out, RunSeries) else None
    if not is_same_work(with_previous(identity_of(job, job_dataset(job)), previous), identity):
        return None
    with reporter.showing():
        folder.tidy(reporter)
        log.info("%s holds the result of this job already: nothing to do", folder.path)
    return saved


def is_complete(job: JobFile, folder: RunFolder, selection: Selection) -> bool:
    """Return whether the selection has the certificate, the proof log and the alternatives that the job asks for."""
    chosen = len(selection) > len(selection.include)  # otherwise there is nothing to list
    if job.alternatives is not None and selection.alternatives is None and chosen:
        return False
    if job.certify is None:
        return True
    logged = not job.certify.log or any("near-best" not in log.name for log in proof_logs(folder.path))
    logged = logged or any(row["method"].startswith(NOTHING) for row in selection.certificate)
    return bool(selection.certificate) and logged
