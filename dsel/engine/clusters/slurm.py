"""Workers as Slurm jobs, through dask-jobqueue."""

from __future__ import annotations

import copy
import logging
import math
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dsel.config.cluster import SlurmSection
from dsel.engine.clusters import dask_config as dask_settings
from dsel.engine.clusters.cluster import RemoteCluster, close, import_extra, wait_for_workers
from dsel.engine.clusters.tls import shared_security
from dsel.engine.scheduler_watch import watched
from dsel.errors import ClusterError

log = logging.getLogger("dsel")

#: Memory of a job beyond the limit of its worker: for the nanny process.
NANNY_BYTES = 256 << 20
#: What a job writes to, and how the files end.
_OUTPUTS = {"-e": "err", "-o": "out"}
#: Without an address, a worker serves its state to all interfaces, even if it has no dashboard.
NO_PAGES = ["--no-dashboard", "--dashboard-address", "127.0.0.1:0"]


class SlurmCluster(RemoteCluster[SlurmSection]):
    """A scheduler in this process, with one Slurm job per worker."""

    section_type = SlurmSection
    shares_files = True
    own_hosts = True

    @contextmanager
    def open(self, name: str, logs: Path | None = None) -> Iterator[Any]:
        """Provide a client. The workers' jobs are cancelled at the end.

        `adapt` keeps the number of workers, also if it is fixed: `scale` would not replace a job that was cancelled or
        preempted.
        """
        jobqueue = import_extra("dask_jobqueue", "dask-jobqueue", "slurm")
        from distributed import Client

        if shutil.which("sbatch") is None:
            raise ClusterError(
                "There is no sbatch on this machine.", "Run dsel where Slurm's commands are on the PATH."
            )
        section = self.section
        low, high = section.bounds
        with (
            dask_settings.applied({**dask_settings.SCHEDULER, **dask_settings.WORKER}),
            shared_security(section.security, logs, name) as security,
        ):
            try:
                cluster = _cluster_class(jobqueue)(**job_options(section, name, logs, security))
            except Exception as error:  # of many kinds, AssertionError among them
                raise ClusterError(f"The scheduler for the Slurm workers did not start: {error}.") from error
            try:
                _require_acceptance(cluster.job_script())
                with Client(cluster, set_as_default=False) as client, watched(client):  # type: ignore[no-untyped-call]
                    cluster.adapt(minimum_jobs=low, maximum_jobs=high, interval="1s", wait_count=3)
                    place = f"slurm, queue {section.queue or 'default'}, {section.walltime} each"
                    wait_for_workers(client, section.asked, section.wait_seconds, place, lambda: _squeue(name))
                    yield client
            finally:
                close(cluster)


def job_options(section: SlurmSection, name: str, logs: Path | None, security: Any | None) -> dict[str, Any]:
    """Return the arguments of dask-jobqueue's `SLURMCluster`, with one worker per job."""
    lines = [*section.prologue]
    variables = {**dask_settings.worker_environment(), **section.environment}
    lines += [f"export {key}={shlex.quote(value)}" for key, value in variables.items()]
    directives, skipped = [*section.directives], []
    if logs is not None:  # dask-jobqueue does not quote the names
        directives = [f'{flag} "{logs}/{name}-%J.{end}"' for flag, end in _OUTPUTS.items()] + directives
        skipped = [f"#SBATCH {flag} " for flag in _OUTPUTS]
    return {
        "python": shlex.quote(sys.executable), "cores": section.threads, "processes": 1,
        "memory": f"{section.worker_bytes}B",
        "job_mem": f"{math.ceil((section.worker_bytes + NANNY_BYTES) / 2**20)}M",
        "queue": section.queue, "account": section.account, "walltime": section.walltime, "job_name": name,
        "job_extra_directives": directives, "job_directives_skip": skipped, "job_script_prologue": lines,
        "interface": section.interface, "local_directory": _escaped(section.local_directory),
        "log_directory": None if logs is None else str(logs), "worker_extra_args": NO_PAGES,
        "scheduler_options": {"dashboard_address": section.dashboard}, "security": security,
        "silence_logs": "error",
    }  # fmt: skip


def _escaped(folder: str | None) -> str | None:
    """Return a folder for the command line of a worker, which may name it by a variable, such as $TMPDIR."""
    return None if folder is None else folder.replace(" ", "\\ ")


def _cluster_class(jobqueue: Any) -> Any:
    """Return dask-jobqueue's `SLURMCluster` with the certificates' paths quoted on the command line of a worker."""

    class QuotedCluster(jobqueue.SLURMCluster):  # type: ignore[misc]
        def _get_worker_security(self, security: Any) -> Any:
            found = copy.copy(super()._get_worker_security(security))
            for key, value in {} if found is None else found.get_tls_config_for_role("worker").items():
                if key != "ciphers" and value is not None:
                    setattr(found, "tls_ca_file" if key == "ca_file" else f"tls_worker_{key}", shlex.quote(value))
            return found

    return QuotedCluster


def _require_acceptance(script: str) -> None:
    """Raise ClusterError if Slurm refuses the job of a worker, such as for a partition that does not exist.

    dask-jobqueue submits from another thread, where a refusal is only logged, and tried again until the wait is over.
    """
    try:
        found = subprocess.run(["sbatch", "--test-only"], input=script, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ClusterError(f"Slurm cannot be asked for workers: {error}.", "Submit from a host with sbatch.") from error
    if found.returncode != 0:
        said = " ".join(found.stderr.split())
        raise ClusterError(f"Slurm refuses the job of a worker: {said}", "Correct the slurm section, or try later.")


def _squeue(name: str) -> str:
    """Return the states and reasons that squeue reports for the jobs."""
    command = ["squeue", "--noheader", "--name", name, "--format", "%i %T %r"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"squeue: {error}"
    lines = found.stdout.split("\n") if found.returncode == 0 else found.stderr.split("\n")
    return "squeue: " + ("; ".join(filter(None, lines)) or "no job of that name")
