"""A job as a YAML file: every key checked, relative paths taken from the file's own folder."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    ValidationError,
    field_validator,
    model_validator,
)

from dsel.config.cluster import ClusterSection
from dsel.config.durations import parse_duration
from dsel.config.import_path import load_function
from dsel.config.request import Column, Settings
from dsel.config.secrets import refuse_passwords
from dsel.config.types import Duration, Float, Int, first_error, not_bool
from dsel.data.dataset import Dataset, as_dataset
from dsel.errors import MissingInputError, OptionError
from dsel.storage.paths import AnyPath, ObjectPath, as_path


def _place(value: Any) -> AnyPath:
    if not isinstance(value, str | AnyPath):
        raise ValueError("it must be a path, or an s3://, gs:// or az:// URL")
    if value == "":
        raise ValueError("it is empty: name a path, or an s3://, gs:// or az:// URL")
    return as_path(value)


_Place = Annotated[AnyPath, PlainValidator(_place), PlainSerializer(str, return_type=str, when_used="json")]


def _column(value: Any) -> Any:
    if not isinstance(not_bool(value), str | int):
        raise ValueError("it must be a label, or an index from 0")
    return value


def _weight(value: Any) -> Any:
    if not (value is None or value is False or isinstance(value, str)):
        raise ValueError("it must be the name of a variable, or false for none")
    return value


_Column = Annotated[Column, BeforeValidator(_column)]
_Weight = Annotated[str | Literal[False] | None, BeforeValidator(_weight)]


class CertifySection(BaseModel):
    """A proof of how far the selection can be from the best one, after the search: how long (90s, 10m, 2h), at most how
    many nodes, for the size that was chosen or for all sizes up to k."""

    model_config = ConfigDict(extra="forbid")

    time: Duration = "1m"
    nodes: Int | None = Field(None, ge=1)
    sizes: Literal["chosen", "all"] = "chosen"

    @property
    def seconds(self) -> float:
        """The time in seconds."""
        return parse_duration(self.time)


class JobFile(BaseModel):
    """What to select, from what, where to run, and where the result goes.

    store: a store made by `dsel ingest` (or any Zarr v3 group with X and perhaps Y). out: folder of the result, by
    default the job file's name with .result in its place. artefacts: folder of statistics that later runs on the same
    data reuse, by default beside the store (in `out`, where that is in another bucket). Each of the three is a path, or
    an s3://, gs:// or az:// URL. criterion: package.module:function, f(S) of the ascending columns chosen or
    f(S, data), minimised in place of the squared error. sample_weight: name of the store's variable of weights, by
    default `weight` where there is one, false for none. checkpoint_seconds, checkpoint_evaluations: an interrupted
    search loses at most that.
    """

    model_config = ConfigDict(extra="forbid")

    store: _Place
    k: Int = Field(ge=1)
    method: str = "poss"
    options: dict[str, Any] = Field(default_factory=dict)
    targets: list[_Column] | None = None
    unsupervised: bool = False
    sample_weight: _Weight = None
    lam: Float = Field(0.0, ge=0)
    preprocess: Literal["standardize", "center", "unit", "none"] = "standardize"
    missing: Literal["refuse", "mean"] = "refuse"
    include: list[_Column] = Field(default_factory=list)
    exclude: list[_Column] = Field(default_factory=list)
    seed: Int = Field(0, ge=0)
    criterion: str | None = None
    cluster: ClusterSection = ClusterSection()
    out: _Place | None = None
    artefacts: _Place | None = None
    checkpoint_seconds: Float = Field(30.0, gt=0)
    checkpoint_evaluations: Int | None = Field(None, ge=1)
    certify: CertifySection | None = None

    @field_validator("options")
    @classmethod
    def _no_nan(cls, options: dict[str, Any]) -> dict[str, Any]:
        for name, value in options.items():
            if isinstance(value, float) and math.isnan(value):
                raise ValueError(f"{name} is not a number (nan)")
        return options

    @model_validator(mode="after")
    def _certificates_are_for_the_quadratic_objective(self) -> JobFile:
        if self.certify is not None and self.criterion is not None:
            raise OptionError(
                "certify: there is no certificate for a criterion of one's own.", "Leave one of them out."
            )
        return self

    def dataset(self) -> Dataset:
        """From what. Errors: MissingInputError, DataError, OptionError about the store; it reads labels alone."""
        return as_dataset(
            str(self.store), targets=self.targets, unsupervised=self.unsupervised, sample_weight=self.sample_weight
        )

    def settings(self) -> Settings:
        """What to select. Errors: OptionError where the criterion cannot be imported."""
        return Settings(
            k=self.k, method=self.method, lam=self.lam, preprocess=self.preprocess, missing=self.missing,
            include=tuple(self.include), exclude=tuple(self.exclude), seed=self.seed, options=dict(self.options),
            criterion=None if self.criterion is None else load_function(self.criterion),
        )  # fmt: skip

    def identity(self) -> dict[str, Any]:
        """What the result depends on, beside the data: not where it runs or is written."""
        exclude = {"cluster", "out", "artefacts", "checkpoint_seconds", "checkpoint_evaluations"}
        exclude |= {name for name in ("certify", "sample_weight") if getattr(self, name) is None}
        return self.model_dump(mode="json", exclude=exclude)


def read_job(path: Path, out: AnyPath | None = None, cluster: Path | None = None) -> JobFile:
    """Read and check a job file; `out` overrides its own, and the file `cluster` its cluster section, so that the same
    job file serves everywhere.

    Errors: MissingInputError where it is not there, OptionError naming the first key or value that is wrong.
    """
    values = _read_yaml(path)
    if not isinstance(values, dict):
        raise OptionError(f"{path} holds no keys.", "It needs at least store and k.")
    if cluster is not None:
        values["cluster"] = _cluster_section(cluster)
    refuse_passwords(values)
    try:
        job = JobFile.model_validate(values)
    except ValidationError as error:
        raise OptionError(f"{path}: {first_error(error, JobFile)}") from error
    folder = path.absolute().parent
    named = {name: getattr(job, name) for name in ("store", "artefacts", "out") if getattr(job, name)}
    beside: dict[str, Any] = {name: _from_folder(folder, value) for name, value in named.items()}
    if isinstance(job.options.get("held_out"), str):  # of the methods that take held-out rows: another store
        held_out = _from_folder(folder, as_path(job.options["held_out"]))
        beside["options"] = {**job.options, "held_out": str(held_out)}
    beside["cluster"] = job.cluster.seen_from((cluster or path).absolute().parent)
    job = job.model_copy(update=beside)
    if out is not None:
        job = job.model_copy(update={"out": out.absolute()})
    if job.out is None:
        job = job.model_copy(update={"out": folder / f"{path.stem}.result"})
    return job


def _from_folder(folder: Path, place: AnyPath) -> AnyPath:
    return place if isinstance(place, ObjectPath) else folder / os.path.expanduser(place)


def _cluster_section(path: Path) -> Any:
    values = _read_yaml(path)
    if not isinstance(values, dict) or list(values) != ["cluster"]:
        raise OptionError(f"{path} does not hold one key, cluster.", "Write it as in a job file.")
    return values["cluster"]


def _require_each_key_once(node: Any) -> None:
    """Refuse a key that a mapping has twice: YAML would pass over the first one without a word."""
    if isinstance(node, yaml.MappingNode):
        lines: dict[str, int] = {}
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                line = key.start_mark.line + 1
                if key.value in lines:
                    raise OptionError(
                        f"the key {key.value!r} is in line {lines[key.value]} and again in line {line}.", "Keep one."
                    )
                lines[key.value] = line
            _require_each_key_once(value)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            _require_each_key_once(value)


def _read_yaml(path: Path) -> Any:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise MissingInputError(f"The job file {path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise OptionError(f"{path} is not a text file: {error}.", "Name the job file (YAML, in UTF-8).") from error
    try:
        _require_each_key_once(yaml.compose(text, yaml.SafeLoader))
        return yaml.safe_load(text)
    except OptionError as error:
        raise OptionError(f"{path}: {error.what}", error.remedy) from error
    except (yaml.YAMLError, ValueError) as error:
        raise OptionError(f"{path} is not YAML: {' '.join(str(error).split())}.") from error
