"""Job files: YAML with the fields of `JobFile`. Relative paths are resolved against the folder of the file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from dsel.config.cluster import ClusterSection
from dsel.config.request import SelectionRequest
from dsel.config.size_rule import InformationCriterion, SizeRule
from dsel.config.types import Bool, Duration, Float, Int, Section, Share, first_error, parse_duration
from dsel.config.yaml_files import read_yaml, refuse_passwords, refuse_secrets
from dsel.errors import OptionError
from dsel.storage.paths import ICECHUNK, AnyPath, ObjectPath, RepositoryPath, as_path


def _from_folder(folder: Path | None, value: str | AnyPath) -> AnyPath:
    place = as_path(value)
    return place if folder is None or isinstance(place, ObjectPath) else folder / os.path.expanduser(place)


def _place(value: Any, info: ValidationInfo) -> AnyPath:
    """Return a path or URL. A path of a file is relative to the folder of the file, which the context names."""
    if not isinstance(value, str | AnyPath):
        raise ValueError("it must be a path, or an s3://, gs:// or az:// URL")
    if value == "":
        raise ValueError("it is empty: name a path, or an s3://, gs:// or az:// URL")
    return _from_folder((info.context or {}).get("folder"), value)


def _store(value: Any, info: ValidationInfo) -> AnyPath | RepositoryPath:
    """Return the same, or a repository of Icechunk, whose folder is relative to that of the file, too."""
    if not (isinstance(value, str) and value.startswith(ICECHUNK)):
        return _place(value, info)
    repository = RepositoryPath.from_url(value)
    return replace(repository, folder=_place(repository.folder, info))


_AS_TEXT = PlainSerializer(str, return_type=str, when_used="json")
_Place = Annotated[AnyPath, PlainValidator(_place), _AS_TEXT]
_Store = Annotated[AnyPath | RepositoryPath, PlainValidator(_store), _AS_TEXT]


class ProofLimits(Section):
    """What a proof is about, and how much of it is made.

    Parameters
    ----------
    nodes : int, optional
        How many nodes the proofs visit at most, for all sizes together. A proof that continues visits as many again.
    sizes : {"chosen", "all"}
        Prove the size that was chosen, or all sizes up to k. The best subset of each size is where the proof for the
        next one begins.
    log : bool
        Write the tree of the proof, so that `dsel verify` can check it. Proofs in passes and proofs by a loss other
        than the squared error have no log.
    coefficient_limit : float, optional
        Prove for subsets whose squared coefficients, for columns of norm 1, sum to at most this many times those of
        the selection. It is for one target. With fewer than 150 columns, the proof is about all subsets.
    largest_coefficient : float, optional
        Prove for subsets whose coefficients, for columns of norm 1, are at most this many times the largest one of the
        selection. It is for one target. With fewer than 150 columns, the proof is about all subsets.
    """

    renamed: ClassVar[dict[str, str]] = {"coefficients": "coefficient_limit"}

    nodes: Int | None = Field(None, ge=1)
    sizes: Literal["chosen", "all"] = "chosen"
    log: Bool = False
    coefficient_limit: Float | None = Field(None, ge=1, le=1e9)
    largest_coefficient: Float | None = Field(None, ge=1, le=1e9)

    @model_validator(mode="after")
    def _has_one_limit(self) -> Self:
        if self.coefficient_limit is not None and self.largest_coefficient is not None:
            raise ValueError("coefficient_limit and largest_coefficient are two limits: give one of them")
        return self

    @property
    def limit(self) -> tuple[str, float] | None:
        """The name and the value of the limit for coefficients, if there is one."""
        for name in ("coefficient_limit", "largest_coefficient"):
            if (value := getattr(self, name)) is not None:
                return name, value
        return None


class CertifySection(ProofLimits):
    """A proof after the search of how far the selection can be from the best one.

    Parameters
    ----------
    time : str or float
        How long to prove: seconds, or text such as 90s, 10m or 2h. A run that continues the proof of an interrupted
        one has all of it again.
    """

    time: Duration = "1m"

    @property
    def seconds(self) -> float:
        """The time in seconds."""
        return parse_duration(self.time)


class ListLimits(Section):
    """Which near-best subsets are listed.

    Parameters
    ----------
    within : float or str
        How much less than the best subset a near-best one may explain: 0.01 or 1%.
    nbest : int, optional
        List this many best subsets instead, whatever they explain, without `within` and `limit`.
    by : {"aic", "aicc", "bic", "ebic", "cp", "adjusted-r2"}, optional
        List the `nbest` best subsets of any size by this criterion. It is for single columns.
    limit : int
        List at most this many near-best subsets. The verdicts count all of them.
    """

    within: Share = Field(0.01, ge=0, lt=1)
    nbest: Int | None = Field(None, ge=1, le=1_000_000)
    by: InformationCriterion | None = None
    limit: Int = Field(1000, ge=1, le=1_000_000)

    @model_validator(mode="after")
    def _a_criterion_ranks(self) -> Self:
        if self.by is not None and self.nbest is None:
            raise ValueError("by ranks the best subsets: say how many in nbest")
        given = [name for name in ("within", "limit") if self.nbest is not None and self.is_changed(name)]
        if given:
            raise ValueError(f"{given[0]} and nbest exclude each other: nbest alone says which subsets are listed")
        return self

    def check_sizes(self, sizes: str) -> None:
        """Raise ValueError for sizes where `by` ranks the subsets of all."""
        if self.by is not None and sizes == "all":
            raise ValueError("by ranks the subsets of all sizes in one list: leave sizes out")


class AlternativesSection(ListLimits):
    """A list of all near-best subsets, with a verdict and a price for each column, after the search.

    Parameters
    ----------
    time : str or float
        How long to search: seconds, or text such as 90s, 10m or 2h.
    sizes : {"chosen", "all"}
        For the size that was chosen, or for all sizes up to k.
    """

    time: Duration = "1m"
    sizes: Literal["chosen", "all"] = "chosen"

    @model_validator(mode="after")
    def _sizes_have_a_use(self) -> Self:
        self.check_sizes(self.sizes)
        return self

    @property
    def seconds(self) -> float:
        """The time in seconds."""
        return parse_duration(self.time)


class RunSeries(Section):
    """A folder with a folder for each run of a repeated job.

    Parameters
    ----------
    folder : Place
        The folder of the runs. `latest` in it points to the last good one.
    keep : int
        How many good runs are kept. Older ones are removed after a good run.
    """

    model_config = ConfigDict(frozen=True)

    folder: _Place
    keep: Int = Field(30, ge=1)


def _out(value: Any, info: ValidationInfo) -> AnyPath | RunSeries | None:
    if value is None or isinstance(value, RunSeries):
        return value
    if not isinstance(value, dict):
        return _place(value, info)
    try:
        return RunSeries.model_validate(value, context=info.context)
    except ValidationError as error:
        raise ValueError(first_error(error, RunSeries)) from None


_Out = Annotated[
    AnyPath | RunSeries | None,
    PlainValidator(_out),
    PlainSerializer(lambda out: out.model_dump(mode="json") if isinstance(out, RunSeries) else out and str(out)),
]


class JobFile(SelectionRequest):
    """A request, with the data, the workers and the result it is for. The keys of a job file are its fields.

    Each place is a path, relative to the folder of the job file, or an s3://, gs:// or az:// URL.

    Parameters
    ----------
    store : Place
        A store made by `dsel ingest`, or a Zarr v3 group with X (dimensions named sample and feature) and perhaps Y
        (sample and target); or an icechunk:// URL, whose snapshot is read through xarray.
    cluster : ClusterSection
        Where the passes over the data run; by default on local workers.
    out : Place or RunSeries, optional
        The folder of the result; by default the name of the job file with .result in place of its suffix. Or
        ``{folder: runs, keep: 30}`` for a repeated job: each run gets a separate folder there.
    statistics_folder : Place, optional
        A folder of statistics that later runs on the same data reuse; by default next to the store, or in `out` where
        that is in another bucket.
    checkpoint_seconds : float
        Seconds of work that an interrupted search loses at most.
    checkpoint_evaluations : int, optional
        Evaluations that an interrupted search loses at most.
    certify : CertifySection, optional
        A proof after the search. A job that changes nothing but its proofs keeps its search, and proves further.
    alternatives : AlternativesSection, optional
        All near-best subsets, with a verdict for each column, or for each group if groups are chosen.
    """

    renamed: ClassVar[dict[str, str]] = {**SelectionRequest.renamed, "artefacts": "statistics_folder"}

    store: _Store
    cluster: ClusterSection = ClusterSection()
    out: _Out = None
    statistics_folder: _Place | None = None
    checkpoint_seconds: Float = Field(30.0, gt=0)
    checkpoint_evaluations: Int | None = Field(None, ge=1)
    certify: CertifySection | None = None
    alternatives: AlternativesSection | None = None

    @field_validator("sample_weight")
    @classmethod
    def _by_name(cls, weight: Any) -> Any:
        if not (weight is None or weight is False or isinstance(weight, str)):
            raise ValueError("it must be the name of a variable, or false for none")
        return weight

    @field_validator("choose_k")
    @classmethod
    def _rows_by_name(cls, rule: SizeRule | None) -> SizeRule | None:
        if rule is not None and not (rule.row_groups is None or isinstance(rule.row_groups, str)):
            raise ValueError("row_groups must be the name of a variable over the samples")
        if rule is not None and not isinstance(rule.split, str):
            raise ValueError("split must be random, blocks or forward; splitters are for Python")
        if rule is not None and not (rule.held_out is None or isinstance(rule.held_out, str | float)):
            raise ValueError("held_out must be a share of the rows, or a store")
        return rule

    @field_validator("criterion")
    @classmethod
    def _by_path(cls, criterion: Any) -> Any:
        if not (criterion is None or isinstance(criterion, str)):
            raise ValueError("it must be package.module:function")
        return criterion

    @model_validator(mode="after")
    def _proofs_need_the_quadratic_objective(self) -> JobFile:
        for name in ("certify", "alternatives"):
            if getattr(self, name) is not None and self.criterion is not None:
                what = "certificate for a custom criterion" if name == "certify" else "list for a custom criterion"
                raise OptionError(f"{name}: there is no {what}.", f"Leave {name} or criterion out.")
        return self

    @property
    def data_folder(self) -> AnyPath:
        """The path of the store, or of the repository that the data are in."""
        return self.store.folder if isinstance(self.store, RepositoryPath) else self.store

    def request(self) -> SelectionRequest:
        """Return the request alone."""
        return SelectionRequest(**{name: getattr(self, name) for name in SelectionRequest.model_fields})

    def identity(self) -> dict[str, Any]:
        """Return what the result depends on besides the data: not where it runs or is written."""
        exclude = {"cluster", "out", "statistics_folder", "checkpoint_seconds", "checkpoint_evaluations"}
        fields = type(self).model_fields  # results of older versions do not have some of them
        exclude |= {name for name in _LATER_FIELDS if getattr(self, name) == fields[name].default}
        values = self.model_dump(mode="json", exclude=exclude)
        certify = values.get("certify", {})
        certify.pop("log", None)  # it does not change the result
        if (limit := certify.pop("coefficient_limit", None)) is not None:
            certify["coefficients"] = limit  # results of older versions call it so
        if certify.get("largest_coefficient", 0) is None:  # results of older versions do not have it
            del certify["largest_coefficient"]
        return values


#: Fields that version 0.1 did not have.
_LATER_FIELDS = (
    "certify",
    "alternatives",
    "sample_weight",
    "rows",
    "max_k",
    "choose_k",
    "groups",
    "polish",
    "reduce",
    "categories",
    "dates",
    "near_copies",
    "loss",
    "offset",
    "class_weight",
)
#: Follows an error about an unknown key that is close to none.
_OPTIONS = "Options of the method go under options."


def read_job(
    path: Path, out: AnyPath | None = None, cluster: Path | None = None, changes: Mapping[str, Any] | None = None
) -> JobFile:
    """Read and validate a job file.

    Parameters
    ----------
    path : Path
        The job file.
    out : Path or ObjectPath, optional
        Takes the place of the key `out`.
    cluster : Path, optional
        A file whose section `cluster` takes the place of the one in the job file.
    changes : mapping, optional
        Keys that take the place of those in the file. None leaves a key as it is.

    Returns
    -------
    JobFile
        The job, with absolute places.

    Raises
    ------
    MissingInputError
        The file cannot be read.
    OptionError
        A key or value is wrong. The error names the first one.
    """
    values = read_yaml(path)
    if not isinstance(values, dict):
        raise OptionError(f"{path} has no keys.", "It needs at least store and k.")
    if cluster is not None:
        values["cluster"] = _cluster_section(cluster)
    given = {key: value for key, value in (changes or {}).items() if value is not None}
    if given.get("k", "auto") != "auto":  # then what chooses k automatically is of no use
        values = {key: value for key, value in values.items() if key not in ("max_k", "choose_k")}
    values |= given
    if out is not None:
        values["out"] = out.absolute()
    elif values.get("out") is None:
        values["out"] = f"{path.stem}.result"
    refuse_passwords(values)
    refuse_secrets(values.get("cluster"), "cluster")
    folder = path.absolute().parent
    context = {"folder": folder, "cluster_folder": (cluster or path).absolute().parent}
    try:
        job = JobFile.model_validate(values, context=context)
    except ValidationError as error:
        raise OptionError(f"{path}: {first_error(error, JobFile, _OPTIONS)}") from error
    resolved: dict[str, Any] = {}
    if isinstance(job.options.get("held_out"), str):  # a store, too
        resolved["options"] = {**job.options, "held_out": str(_from_folder(folder, job.options["held_out"]))}
    if job.choose_k is not None and isinstance(job.choose_k.held_out, str):
        held_out = _from_folder(folder, job.choose_k.held_out)
        resolved["choose_k"] = job.choose_k.model_copy(update={"held_out": str(held_out)})
    return job.model_copy(update=resolved)


def read_cluster(path: Path) -> ClusterSection:
    """Read and validate a file with the section `cluster` alone.

    Parameters
    ----------
    path : Path
        The file.

    Returns
    -------
    ClusterSection
        The section, with paths resolved against the folder of the file.

    Raises
    ------
    MissingInputError
        The file cannot be read.
    OptionError
        A key or value is wrong. The error names the first one.
    """
    section = _cluster_section(path)
    refuse_secrets(section, "cluster")
    try:
        return ClusterSection.model_validate(section, context={"cluster_folder": path.absolute().parent})
    except ValidationError as error:
        raise OptionError(f"{path}: {first_error(error, ClusterSection)}") from error


def _cluster_section(path: Path) -> Any:
    values = read_yaml(path, "cluster file")
    if not isinstance(values, dict) or list(values) != ["cluster"]:
        raise OptionError(f"{path} does not have one key, cluster.", "Write it as in a job file.")
    return values["cluster"]
