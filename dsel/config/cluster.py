"""The section `cluster` of a job file: where the workers come from."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from dsel._lib.byte_sizes import parse_bytes
from dsel.config.types import Duration, Int, Section, parse_duration
from dsel.config.yaml_files import refuse_passwords, refuse_secrets
from dsel.errors import OptionError


def _with_variables(value: Any) -> Any:
    """Return a string with its $VARIABLES expanded, so that one file serves every run."""
    if not isinstance(value, str):
        return value
    expanded = os.path.expandvars(value)
    missing = re.search(r"\$\{?\w+", expanded)
    if missing:
        raise OptionError(f"cluster: {value!r}: the variable {missing[0]} is not set.", "Set it, or write its value.")
    refuse_passwords(expanded, f"cluster: {value!r}")
    return expanded


#: More is a slip of the keyboard.
_MOST_WORKERS, _MOST_THREADS = 10_000, 1024
#: The memory of a worker: less holds no Python, and more is a wrong unit.
_LEAST_MEMORY, _MOST_MEMORY = 64 << 20, 64 << 40


def _some_bytes(value: str) -> str:
    try:
        size = parse_bytes(value)
    except ValueError:
        size = 0
    if not _LEAST_MEMORY <= size <= _MOST_MEMORY:
        raise ValueError("it must be from 64MiB to 64TiB; write the unit, such as 4GiB")
    return value


def _walltime(value: str) -> str:
    if not re.fullmatch(r"(\d+-)?\d+(:\d+){0,2}", value):
        raise ValueError("it must be a time of Slurm, such as 02:00:00 or 1-12:00:00")
    return value


def _scheduler_address(value: str) -> str:
    if not re.fullmatch(r"(tcp|tls|ws|wss|ucx)://[^/\s]+:\d+", value):
        raise ValueError("it must be an address such as tcp://host:8786 or tls://host:8786")
    return value


def _from_folder(path: str, info: ValidationInfo) -> str:
    """Return a path of a file as seen from the folder of the file, which the context names."""
    folder = (info.context or {}).get("cluster_folder")
    return path if folder is None else str(folder / Path(path).expanduser())


_Expanded = Annotated[str, BeforeValidator(_with_variables)]
_Bytes = Annotated[str, AfterValidator(_some_bytes)]
Security = Literal["tls", "none"]


class SiteSection(Section):
    """What every kind of cluster outside this machine has.

    Parameters
    ----------
    workers : int, optional
        How many workers to ask for.
    wait : str or float
        How long to wait for the scheduler and for them. The job begins with the workers that are ready by then.
    """

    kind: ClassVar[str]

    workers: Int | None = Field(None, ge=1, le=_MOST_WORKERS)
    wait: Duration = "5m"

    @property
    def wait_seconds(self) -> float:
        """Seconds to wait for workers."""
        return parse_duration(self.wait)

    @property
    def asked(self) -> int:
        """How many workers to wait for at the beginning."""
        return self.workers or 1

    @property
    def worker_bytes(self) -> int | None:
        """The memory limit of a worker in bytes; None where it is not known before a worker is there."""
        return None


class _Elastic(SiteSection):
    """A cluster of a fixed or changing size.

    Parameters
    ----------
    minimum, maximum : int, optional
        Bounds on the number of workers, which follows the work between them. They take the place of `workers`. The
        default of `minimum` is 1.
    """

    minimum: Int | None = Field(None, ge=1, le=_MOST_WORKERS)
    maximum: Int | None = Field(None, ge=1, le=_MOST_WORKERS)

    @model_validator(mode="after")
    def _one_size(self) -> _Elastic:
        if (self.workers is None) == (self.maximum is None):
            raise OptionError(f"cluster: {self.kind}: say workers, or minimum and maximum.", "Give one of the two.")
        if self.maximum is None and self.minimum is not None:
            raise OptionError(f"cluster: {self.kind}: minimum goes with maximum.", "Give both, or workers.")
        if self.maximum is not None and (self.minimum or 1) > self.maximum:
            raise OptionError(
                f"cluster: {self.kind}: minimum ({self.minimum}) is above maximum ({self.maximum}).", "Exchange them."
            )
        return self

    @property
    def bounds(self) -> tuple[int, int]:
        """The smallest and the largest number of workers."""
        if self.workers is not None:
            return self.workers, self.workers
        assert self.maximum is not None
        return self.minimum or 1, self.maximum

    @property
    def asked(self) -> int:
        """How many workers to wait for at the beginning."""
        return self.bounds[0]


class _StartedWorkers(_Elastic):
    """Workers that dsel starts.

    Parameters
    ----------
    memory : str
        The memory limit of each worker, such as 4GiB or 800MB.
    threads : int
        Threads of each worker.
    environment : dict
        Environment variables of the workers. Secrets are not allowed here.
    """

    memory: _Bytes
    threads: Int = Field(1, ge=1, le=_MOST_THREADS)
    environment: dict[str, str] = Field(default_factory=dict)

    @field_validator("environment")
    @classmethod
    def _no_secrets(cls, value: dict[str, str]) -> dict[str, str]:
        refuse_secrets(value, "environment")
        for name in value:
            if not re.fullmatch(r"[A-Za-z_]\w*", name):
                raise OptionError(
                    f"cluster: environment: {name!r} is not a name of a variable.",
                    "Use letters, digits and underscores.",
                )
        return value

    @property
    def worker_bytes(self) -> int:
        """The memory limit of a worker."""
        return int(parse_bytes(self.memory))


class LocalSection(Section):
    """Worker processes on this machine.

    Parameters
    ----------
    workers : int, optional
        How many; by default one per core.
    memory : str, optional
        The memory limit of each worker; by default an equal share of 80 % of the memory of this machine.
    threads : int
        Threads of each worker.
    security : {"tls", "none"}
        Encrypt and authenticate what the processes send to each other, with certificates for this run; or not. TLS
        settings of Dask's own configuration come first.
    """

    kind: ClassVar[str] = "local"

    workers: Int | None = Field(None, ge=1, le=_MOST_WORKERS)
    memory: _Bytes | None = None
    threads: Int = Field(1, ge=1, le=_MOST_THREADS)
    security: Security = "tls"


class AddressSection(SiteSection):
    """A running scheduler.

    Parameters
    ----------
    address : str
        A tcp:// or tls:// address. $VARIABLES are expanded.
    """

    kind: ClassVar[str] = "address"

    address: Annotated[_Expanded, AfterValidator(_scheduler_address)]


class SchedulerFileSection(SiteSection):
    """A running scheduler that wrote a scheduler file.

    Parameters
    ----------
    path : str
        The file that ``dask scheduler --scheduler-file`` writes. dsel waits until the scheduler in it answers, and
        reads it again before each attempt: the file may be left from an earlier scheduler.
    """

    kind: ClassVar[str] = "scheduler_file"

    path: Annotated[_Expanded, Field(min_length=1), AfterValidator(_from_folder)]


class SlurmSection(_StartedWorkers):
    """One Slurm job for each worker, by dask-jobqueue. A lost job is replaced.

    Parameters
    ----------
    queue, account, walltime : str
        As for sbatch.
    directives : list of str
        Further #SBATCH lines, such as "--qos=long".
    prologue : list of str
        Shell lines that run before the worker, such as "module load python".
    interface : str, optional
        The network interface that the workers and the scheduler use.
    local_directory : str, optional
        Where workers spill to disk.
    dashboard : str
        The address of the scheduler's dashboard and metrics.
    security : {"tls", "none"}
        Encrypt and authenticate what scheduler and workers send to each other; or not. The certificates are for this
        run, in the folder of the result. TLS settings of Dask's own configuration come first.
    """

    kind: ClassVar[str] = "slurm"

    queue: str | None = None
    account: str | None = None
    walltime: Annotated[str, AfterValidator(_walltime)] = "01:00:00"
    directives: list[str] = Field(default_factory=list)
    prologue: list[str] = Field(default_factory=list)
    interface: str | None = None
    local_directory: str | None = None
    dashboard: str = "127.0.0.1:0"
    security: Security = "tls"


class KubernetesSection(_StartedWorkers):
    """A DaskCluster of the dask-kubernetes operator, with one pod for each worker.

    Parameters
    ----------
    image : str
        An image that contains dsel.
    namespace, service_account : str, optional
        As for kubectl.
    secrets : list of str
        Names of Secrets whose keys become environment variables of the pods, such as the credentials of a bucket.
    image_pull_secrets : list of str
        Names of Secrets with the credentials of the image's registry.
    claims : dict
        PersistentVolumeClaims, and the path where each is mounted, read-only.
    resources : dict
        Further requests and limits of a worker, next to the memory and CPUs that follow from `memory` and `threads`.
    node_selector : dict
        Labels of the nodes that the pods run on.
    tolerations : list of dict
        Taints of nodes that the pods tolerate, as in a pod: key, operator, value, effect.
    idle_timeout : str or float
        The operator deletes a cluster without a task for this time, where its driver was lost. A search in the driver
        has no tasks: it must be shorter.
    scheduler_memory : str
        The memory limit of the scheduler.
    scratch : str
        The limit of the temporary files of each pod, beyond which Kubernetes evicts it.
    job_name, job_uid : str, optional
        The Kubernetes Job that the driver's pod belongs to. The cluster has its name, so that the next pod of the Job
        finds it, and is deleted with it.
    """

    kind: ClassVar[str] = "kubernetes"

    image: _Expanded
    namespace: str | None = None
    service_account: str | None = None
    secrets: list[str] = Field(default_factory=list)
    image_pull_secrets: list[str] = Field(default_factory=list)
    claims: dict[str, str] = Field(default_factory=dict)
    resources: dict[str, dict[str, str]] = Field(default_factory=dict)
    node_selector: dict[str, str] = Field(default_factory=dict)
    tolerations: list[dict[str, str | int]] = Field(default_factory=list)
    idle_timeout: Duration = "6h"
    scheduler_memory: _Bytes = "2GiB"
    scratch: _Bytes = "10GiB"
    job_name: _Expanded | None = None
    job_uid: _Expanded | None = None


class GatewaySection(_Elastic):
    """A cluster of a Dask Gateway.

    Parameters
    ----------
    address : str, optional
        The address of the gateway; by default that of Dask's configuration.
    options : dict
        Options that the administrator of the gateway offers, such as image and worker_memory.
    """

    kind: ClassVar[str] = "gateway"

    address: _Expanded | None = None
    options: dict[str, Any] = Field(default_factory=dict)


def _section_of(key: str) -> Any:
    """Return a validator that takes plain text for a section with this one key."""

    def convert(value: Any) -> Any:
        return {key: value} if isinstance(value, str) else value

    return BeforeValidator(convert)


AnySection = LocalSection | AddressSection | SchedulerFileSection | SlurmSection | KubernetesSection | GatewaySection


class ClusterSection(Section):
    """Where the passes over the data run: one of these sections, by default local workers."""

    local: LocalSection | None = None
    address: Annotated[AddressSection | None, _section_of("address")] = None
    scheduler_file: Annotated[SchedulerFileSection | None, _section_of("path")] = None
    slurm: SlurmSection | None = None
    kubernetes: KubernetesSection | None = None
    gateway: GatewaySection | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> ClusterSection:
        given = self._given
        if len(given) > 1:
            raise OptionError(f"cluster: {' and '.join(given)} are both given.", "Name one of them.")
        return self

    @property
    def chosen(self) -> AnySection:
        """The section that is given."""
        return next(iter(self._given.values()), LocalSection())

    @property
    def _given(self) -> dict[str, AnySection]:
        sections = {name: getattr(self, name) for name in type(self).model_fields}
        return {name: section for name, section in sections.items() if section is not None}
