"""A job whose result is there already. It is found in a second: nothing is imported that only a run needs."""

from __future__ import annotations

import logging

from dsel.config.job import JobFile, RunSeries
from dsel.jobs.locations import identity_of, job_dataset, out_folder
from dsel.jobs.reporting import Reporter
from dsel.jobs.run_folder import RunFolder, proof_logs
from dsel.jobs.series.folders import RunFolders
from dsel.selection.result import Selection
from dsel.storage.locks import is_free
from dsel.storage.paths import as_path, latest_name

log = logging.getLogger("dsel")


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
    folder, before = RunFolder(out_folder(job)), None
    if isinstance(job.out, RunSeries):
        runs = RunFolders(job.out.folder)
        name = runs.latest()
        settled = name is not None and runs.unfinished() is None and latest_name(job.out.folder) == name
        if name is None or not settled or not is_free(job.out.folder):
            return None  # the last one may have been killed before it set the pointer or freed the lock
        folder = RunFolder(job.out.folder / name)
    manifest = folder.read_manifest()
    if manifest is None or not as_path(job.store).exists():  # then the run says what is wrong
        return None
    if isinstance(job.out, RunSeries):
        before = manifest["identity"].get("previous")
    saved = folder.finished(identity_of(job, job_dataset(job), before))
    if saved is None or not is_complete(job, folder, saved):
        return None
    with reporter.showing():
        folder.tidy(reporter)
        log.info("%s holds the result of this job already: nothing to do", folder.path)
    return saved


def is_complete(job: JobFile, folder: RunFolder, selection: Selection) -> bool:
    """Return whether the selection has the certificate, and the proof log, that the job asks for."""
    if job.certify is None:
        return True
    logged = not job.certify.log or bool(proof_logs(folder.path))
    return bool(selection.certificate) and logged
