"""What may be asked: one model, which `dsel.select`, job files and saved results share."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pydantic import ValidationError

import dsel
from dsel.config.job import JobFile, read_job
from dsel.config.request import SelectionRequest
from dsel.config.types import suggest_option
from dsel.errors import OptionError


def test_select_has_the_arguments_and_defaults_of_a_request() -> None:
    arguments = inspect.signature(dsel.select).parameters
    shown = ("progress", "on_event")  # what a caller sees of a run, and no part of the request
    keywords = {name: p.default for name, p in arguments.items() if p.kind is p.KEYWORD_ONLY and name not in shown}
    fields = {name: field.default for name, field in SelectionRequest.model_fields.items() if name != "options"}
    assert keywords.keys() == fields.keys()
    required = {name for name, default in keywords.items() if default is inspect.Parameter.empty}
    assert required == {name for name, field in SelectionRequest.model_fields.items() if field.is_required()} == {"k"}
    assert {name: keywords[name] for name in keywords.keys() - required} == {
        name: fields[name] for name in fields.keys() - required
    }


def test_columns_may_come_in_any_sequence() -> None:
    columns = pd.Index(["a", "b"])
    request = SelectionRequest(k=np.int64(3), include=columns, exclude=np.array([4, 5]), targets=(c for c in "xy"))
    assert (request.k, request.include, request.exclude, request.targets) == (3, ("a", "b"), (4, 5), ("x", "y"))
    assert json.loads(request.model_dump_json())["exclude"] == [4, 5]


def test_a_request_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        SelectionRequest(k=3).k = 4  # type: ignore[misc]


def test_a_job_file_is_a_request_with_places(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("store: s.zarr\nk: 3\nmethod: forward\ninclude: [a, 2]\nlam: 0.5\ncriterion: own:score\n")
    job = read_job(path)
    expected = SelectionRequest(k=3, method="forward", include=["a", 2], lam=0.5, criterion="own:score")
    assert job.request() == expected
    assert JobFile.model_validate(job.model_dump(mode="json")) == job


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("iterations: 100", r"unknown key 'iterations'. Known: .*. Options of the method go under options."),
        ("random_state: 1", "unknown key 'random_state'. Did you mean 'seed'?"),
        ("n_jobs: 2", "the section cluster of a job file"),
        ("criterion: score", "'criterion' is 'score': it must be a function, or package.module:function"),
        ("sample_weight: [1, 2]", "it must be the name of a variable"),
    ],
)
def test_an_error_in_a_job_file_suggests_what_to_write(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(f"store: s.zarr\nk: 3\n{line}\n")
    with pytest.raises(OptionError, match=message):
        read_job(path)


def test_names_of_other_libraries_and_other_cases_are_understood() -> None:
    known = ["k", "seed", "lam", "iterations", "min-index"]
    assert suggest_option("N_Features_To_Select", known) == "Did you mean 'k'?"
    assert suggest_option("min_index", known) == "Did you mean 'min-index'?"
    assert suggest_option("Iteration", known) == "Did you mean 'iterations'?"
    assert "logger 'dsel'" in suggest_option("verbose", known)
    assert suggest_option("xyz", known) == "Known: k, seed, lam, iterations, min-index."


def test_a_saved_selection_holds_the_request(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(40, 6))
    selection = dsel.select(X, X[:, 0], k=2, method="exchange", missing="mean", exclude=["x3"], restarts=3)
    found = dsel.open_selection(selection.save(tmp_path / "out"))
    assert found.request == selection.request
    assert (found.request.missing, found.exclude) == ("mean", (3,))
    assert found.options == {"restarts": 3, "start": "random"}
