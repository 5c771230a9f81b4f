"""A job as a YAML file: every key checked, relative paths taken from the file's own folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dsel.errors import MissingInputError, OptionError
from dsel.import_path import load_function
from dsel.pipeline import Column, Settings
from dsel.validation import first_error


class LocalSection(BaseModel):
    """Worker processes on this machine: how many, and the memory limit of each (1GiB, 800MB)."""

    model_config = ConfigDict(extra="forbid")

    workers: int | None = Field(None, ge=1)
    memory: str | None = None


class ClusterSection(BaseModel):
    """Where the passes over the data run."""

    model_config = ConfigDict(extra="forbid")

    local: LocalSection = LocalSection()


class JobFile(BaseModel):
    """What to select, from what, where to run, and where the result goes.

    store: a store made by `dsel ingest` (or any Zarr v3 group with X and perhaps Y). out: folder of the result, by
    default the job file's name with .result in its place. artefacts: folder of statistics that later runs on the same
    data reuse, by default beside the store. criterion: package.module:function, of the ascending columns chosen,
    minimised in place of the squared error. checkpoint_seconds: an interrupted search loses at most that.
    """

    model_config = ConfigDict(extra="forbid")

    store: Path
    k: int = Field(ge=1)
    method: str = "poss"
    options: dict[str, Any] = Field(default_factory=dict)
    targets: list[Column] | None = None
    unsupervised: bool = False
    lam: float = Field(0.0, ge=0)
    preprocess: Literal["standardize", "center", "unit", "none"] = "standardize"
    missing: Literal["refuse", "mean"] = "refuse"
    include: list[Column] = Field(default_factory=list)
    exclude: list[Column] = Field(default_factory=list)
    seed: int = Field(0, ge=0)
    criterion: str | None = None
    cluster: ClusterSection = ClusterSection()
    out: Path | None = None
    artefacts: Path | None = None
    checkpoint_seconds: float = Field(30.0, gt=0)

    def settings(self) -> Settings:
        """What to select."""
        return Settings(
            k=self.k, method=self.method, lam=self.lam, preprocess=self.preprocess, missing=self.missing,
            include=tuple(self.include), exclude=tuple(self.exclude), seed=self.seed, options=dict(self.options),
            criterion=None if self.criterion is None else load_function(self.criterion),
        )  # fmt: skip

    def identity(self) -> dict[str, Any]:
        """What the result depends on, beside the data: not where it runs or is written."""
        return self.model_dump(mode="json", exclude={"cluster", "out", "artefacts", "checkpoint_seconds"})


def read_job(path: Path, out: Path | None = None) -> JobFile:
    """Read and check a job file; `out` overrides its own.

    Errors: MissingInputError where it is not there, OptionError naming the first key or value that is wrong.
    """
    try:
        text = path.read_text()
    except OSError as error:
        raise MissingInputError(f"The job file {path} cannot be read: {error.strerror}.") from error
    try:
        values = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise OptionError(f"{path} is not YAML: {' '.join(str(error).split())}.") from error
    if not isinstance(values, dict):
        raise OptionError(f"{path} holds no keys.", "It needs at least store and k.")
    try:
        job = JobFile.model_validate(values)
    except ValidationError as error:
        raise OptionError(f"{path}: {first_error(error, JobFile)}") from error
    folder = path.absolute().parent
    beside: dict[str, Any] = {
        name: folder / getattr(job, name) for name in ("store", "artefacts", "out") if getattr(job, name)
    }
    if isinstance(job.options.get("held_out"), str):  # of the methods that take held-out rows: another store
        beside["options"] = {**job.options, "held_out": str(folder / job.options["held_out"])}
    job = job.model_copy(update=beside)
    if out is not None:
        job = job.model_copy(update={"out": out.absolute()})
    if job.out is None:
        job = job.model_copy(update={"out": folder / f"{path.stem}.result"})
    return job
