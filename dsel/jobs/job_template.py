"""A commented job file for a store: what `dsel init` writes."""

from __future__ import annotations

import os
from importlib.resources import files
from pathlib import Path

from dsel._lib.text import noun, printable, shorten
from dsel.config.request import SelectionRequest
from dsel.data.as_dataset import as_dataset
from dsel.data.dataset import Dataset
from dsel.data.ingest_report import missing_targets
from dsel.errors import OptionError, OutputError
from dsel.jobs.reporting import output_errors
from dsel.planning.validation import validate
from dsel.search.registry import METHODS, find_method
from dsel.storage.paths import ObjectPath, as_path

#: How many columns a job chooses if nobody says.
DEFAULT_K = 10


def write_job_file(
    store: str, path: Path, *, k: int | str | None = None, method: str = "poss", overwrite: bool = False
) -> tuple[int | str, str]:
    """Write a commented job file that runs, and return its k and what must be corrected before it runs.

    Parameters
    ----------
    store : str
        A path or URL. It must exist, because the comments describe it.
    path : Path
        The file to write.
    k : int or "auto", optional
        How many columns to choose; by default 10, or half of the columns if there are fewer than 20; a category is one.
    method : str
        The name of a method.
    overwrite : bool
        Whether to replace a file that exists.

    Returns
    -------
    k : int or "auto"
        The k in the file.
    problem : str
        How many targets are missing, and what helps; "" if there are none.

    Raises
    ------
    OutputError
        The file exists already, or cannot be written.
    OptionError, MissingInputError
        The store, k or the method cannot be used.
    """
    if path.exists() and not overwrite:
        raise OutputError(f"{path} exists already.", "Choose another --out, or replace it with --overwrite.")
    dataset = as_dataset(store)
    groups = dataset.n if dataset.categories is None else len(set(dataset.categories.tolist()))
    k = min(DEFAULT_K, max(groups // 2, 1)) if k is None else k
    if find_method(method).unsupervised_only and dataset.n_targets:
        raise OptionError(
            f"{method} chooses columns for X itself, and {store} has targets.", "Choose another --method."
        )
    validate(dataset, SelectionRequest.of(k=k, method=method))
    with output_errors(f"{path} cannot be written", "Choose another --out."):
        path.write_text(_fill(dataset, store, path, k, method), encoding="utf-8")
    return k, missing_targets(dataset)


def _fill(dataset: Dataset, store: str, path: Path, k: int | str, method: str) -> str:
    features = [str(label) for label in (dataset.features[0], dataset.features[-1])]
    lines = [f"#   {name}: {METHODS[name].summary}" for name in METHODS]
    template = files("dsel") / "examples" / "job.yaml.template"
    return template.read_text(encoding="utf-8").format(
        name=printable(path.name), data=_describe(dataset), store=_quoted(_from(path, store)), k=k, method=method,
        methods="\n".join(lines), targets=_targets(dataset), missing=_missing(dataset), loss=_loss(dataset),
        out=_quoted(f"{path.stem}.result"),
        first=printable(_quoted(features[0])), last=printable(_quoted(features[1])),
    )  # fmt: skip


def _describe(dataset: Dataset) -> str:
    labels = [printable(label) for label in dataset.targets]
    targets = f"targets: {shorten(labels)}" if labels else "no targets, so columns are chosen for X itself"
    return f"{dataset.m:,} samples x {dataset.n:,} {noun(dataset.n, 'feature')}; {targets}"


def _targets(dataset: Dataset) -> str:
    if dataset.n_targets < 2:
        return ""
    return f"\n# Use some of the targets.\n# targets: [{printable(_quoted(str(dataset.targets[0])))}]\n"


def _loss(dataset: Dataset) -> str:
    """Return the comment about the loss; "" without targets."""
    if not dataset.n_targets:
        return ""
    about, loss = "", "logistic"
    if dataset.classes:
        target, levels = next(iter(dataset.classes.items()))
        about = f" {printable(target)} has {len(levels)} classes, whose probabilities this loss fits."
        loss = loss if len(levels) == 2 else "multinomial"
    return f"# What is minimized: squared, the default, or the deviance of a loss.{about}\n# loss: {loss}\n\n"


def _missing(dataset: Dataset) -> str:
    had, problem = dataset.missing_when_written(), missing_targets(dataset)
    comment = f"# {problem[0].upper()}{problem[1:]}.\n" if problem else ""
    if not had:
        return f"{comment}missing: refuse"
    return f"{comment}# X has {had}.\nmissing: mean"


def _from(path: Path, store: str) -> str:
    """Return the store as the job file must name it: relative to the folder of the file."""
    place = as_path(store)
    if isinstance(place, ObjectPath) or place.is_absolute():
        return str(place)
    return os.path.relpath(place, path.absolute().parent)


def _quoted(text: str) -> str:
    """Return text as YAML reads it back."""
    import yaml

    text = str(yaml.safe_dump(text, allow_unicode=True, width=10_000))
    return text.removesuffix("...\n").strip()
