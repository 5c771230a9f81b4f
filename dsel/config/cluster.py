"""Where the workers come from, as it is written in a job file: one section each, one vocabulary for all."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Any, ClassVar

from dask.utils import parse_bytes
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from dsel.config.secrets import is_secret_name, refuse_passwords
from dsel.config.types import Duration, Int, parse_duration
from dsel.errors import OptionError


def _with_variables(value: Any) -> Any:
    """A string with its $VARIABLES put in, so that one file serves every run."""
    if not isinstance(value, str):
        return value
    expanded = os.path.expandvars(value)
    missing = re.search(r"\$\{?\w+", expanded)
    if missing:
        raise OptionError(
            f"cluster: {value!r}: the variable {missing[0]} is not set.", "Set it, or write what it stands for."
        )
    refuse_passwords(expanded, f"cluster: {value!r}")
    return expanded


def _some_bytes(value: str) -> str:
    if parse_bytes(value) <= 0:
        raise ValueError("it must be above 0")
    return value


_Expanded = Annotated[str, BeforeValidator(_with_variables)]
_Bytes = Annotated[str, AfterValidator(_some_bytes)]


class SiteSection(BaseModel):
    """workers: how many are asked for. wait: how long for them; the job begins with those that have come by then."""

    model_config = ConfigDict(extra="forbid")
    kind: ClassVar[str]

    workers: Int | None = Field(None, ge=1)
    wait: Duration = "5m"

    @property
    def wait_seconds(self) -> float:
        """How long to wait for workers."""
        return parse_duration(self.wait)

    @property
    def asked(self) -> int:
        """Workers to wait for at the beginning."""
        return self.workers or 1

    @property
    def worker_bytes(self) -> int | None:
        """The memory limit of a worker, as far as it is known before there is one."""
        return None


class _Elastic(SiteSection):
    """minimum (default 1), maximum: between these the number follows the work, in place of `workers`."""

    minimum: Int | None = Field(None, ge=1)
    maximum: Int | None = Field(None, ge=1)

    @model_validator(mode="after")
    def _one_size(self) -> _Elastic:
        if (self.workers is None) == (self.maximum is None):
            raise OptionError(f"cluster: {self.kind}: say workers, or minimum and maximum.", "One of the two.")
        if self.maximum is None and self.minimum is not None:
            raise OptionError(f"cluster: {self.kind}: minimum goes with maximum.", "Say both, or workers.")
        if self.maximum is not None and (self.minimum or 1) > self.maximum:
            raise OptionError(f"cluster: {self.kind}: minimum ({self.minimum}) is above maximum ({self.maximum}).")
        return self

    @property
    def bounds(self) -> tuple[int, int]:
        """Fewest and most workers."""
        if self.workers is not None:
            return self.workers, self.workers
        assert self.maximum is not None
        return self.minimum or 1, self.maximum

    @property
    def asked(self) -> int:
        """Workers to wait for at the beginning."""
        return self.bounds[0]


class _Made(_Elastic):
    """Workers that dsel asks the site for. memory: the limit of each (4GiB, 800MB); threads: of each. environment:
    variables for them (no secrets: those come by the site's own ways)."""

    memory: _Bytes
    threads: Int = Field(1, ge=1)
    environment: dict[str, str] = Field(default_factory=dict)

    @field_validator("environment")
    @classmethod
    def _no_secrets(cls, value: dict[str, str]) -> dict[str, str]:
        refuse_passwords(value)
        for name in value:
            if not re.fullmatch(r"[A-Za-z_]\w*", name):
                raise OptionError(f"cluster: environment: {name!r} is no name for a variable.")
            if is_secret_name(name):
                raise OptionError(  # the value is not repeated
                    f"cluster: environment: {name} looks like a secret, and job files are no place for one.",
                    "Set it in the environment of dsel (Slurm passes it on), or name a Secret (kubernetes: secrets).",
                )
        return value

    @property
    def worker_bytes(self) -> int:
        """The memory limit of a worker."""
        return int(parse_bytes(self.memory))


class LocalSection(BaseModel):
    """Worker processes on this machine: how many (default: one a core), the memory limit of each (default: a share of
    80 % of what there is), and threads of each."""

    model_config = ConfigDict(extra="forbid")
    kind: ClassVar[str] = "local"

    workers: Int | None = Field(None, ge=1)
    memory: _Bytes | None = None
    threads: Int = Field(1, ge=1)


class AddressSection(SiteSection):
    """A scheduler that runs already, tcp:// or tls://; $VARIABLES are put in. workers: how many to wait for."""

    kind: ClassVar[str] = "address"

    address: _Expanded


class SchedulerFileSection(SiteSection):
    """A scheduler that runs already, by the file that `dask scheduler --scheduler-file` writes; it is waited for."""

    kind: ClassVar[str] = "scheduler_file"

    path: _Expanded


class SlurmSection(_Made):
    """One Slurm job a worker, through dask-jobqueue; a job that is lost is replaced.

    directives: further #SBATCH lines ("--qos=long"). prologue: shell lines before the worker ("module load python").
    interface: network interface that workers and scheduler meet on. dashboard: where the scheduler's pages and
    metrics listen. local_directory: where workers spill.
    """

    kind: ClassVar[str] = "slurm"

    queue: str | None = None
    account: str | None = None
    walltime: str = "01:00:00"
    directives: list[str] = Field(default_factory=list)
    prologue: list[str] = Field(default_factory=list)
    interface: str | None = None
    local_directory: str | None = None
    dashboard: str = "127.0.0.1:0"


class KubernetesSection(_Made):
    """A DaskCluster of the dask-kubernetes operator, one pod a worker.

    image: holds dsel. secrets: names of Secrets whose keys become the pods' variables (credentials of a bucket).
    claims: PersistentVolumeClaims and where they are mounted. resources: further requests and limits of a worker,
    beside the memory and CPUs that follow from memory and threads. job_name, job_uid: of the Kubernetes Job that the
    driver's pod belongs to: the cluster has its name, so that the next pod of the Job finds it, and goes with it.
    """

    kind: ClassVar[str] = "kubernetes"

    image: _Expanded
    namespace: str | None = None
    service_account: str | None = None
    secrets: list[str] = Field(default_factory=list)
    claims: dict[str, str] = Field(default_factory=dict)
    resources: dict[str, dict[str, str]] = Field(default_factory=dict)
    node_selector: dict[str, str] = Field(default_factory=dict)
    scheduler_memory: _Bytes = "2GiB"
    job_name: _Expanded | None = None
    job_uid: _Expanded | None = None


class GatewaySection(_Elastic):
    """A cluster of a Dask Gateway. address: of the gateway (default: Dask's configuration). options: those that its
    administrator offers (image, worker_memory, ...)."""

    kind: ClassVar[str] = "gateway"

    address: _Expanded | None = None
    options: dict[str, Any] = Field(default_factory=dict)


def _section_of(key: str) -> Any:
    """A plain string stands for a section of that one key."""

    def convert(value: Any) -> Any:
        return {key: value} if isinstance(value, str) else value

    return BeforeValidator(convert)


Section = LocalSection | AddressSection | SchedulerFileSection | SlurmSection | KubernetesSection | GatewaySection


class ClusterSection(BaseModel):
    """Where the passes over the data run: exactly one of these; by default local workers."""

    model_config = ConfigDict(extra="forbid")

    local: LocalSection | None = None
    address: Annotated[AddressSection | None, _section_of("address")] = None
    scheduler_file: Annotated[SchedulerFileSection | None, _section_of("path")] = None
    slurm: SlurmSection | None = None
    kubernetes: KubernetesSection | None = None
    gateway: GatewaySection | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> ClusterSection:
        given = [name for name in type(self).model_fields if getattr(self, name) is not None]
        if len(given) > 1:
            raise OptionError(f"cluster: {' and '.join(given)} are both given.", "Name one of them.")
        return self

    @property
    def chosen(self) -> Section:
        """The one that is given."""
        for name in type(self).model_fields:
            section = getattr(self, name)
            if section is not None:
                found: Section = section
                return found
        return LocalSection()

    def seen_from(self, folder: Path) -> ClusterSection:
        """The same section with a relative scheduler file taken from the folder of the file that names it."""
        if self.scheduler_file is None:
            return self
        path = str(folder / Path(self.scheduler_file.path).expanduser())
        return self.model_copy(update={"scheduler_file": self.scheduler_file.model_copy(update={"path": path})})
