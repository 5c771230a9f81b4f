"""Parameters of losses: in Python, in job files, on the command line, and in what results record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import dsel
from dsel.data.ingest import ingest_arrays
from dsel.errors import OptionError
from dsel.objective.losses.huber import Huber
from dsel.objective.losses.quantile import Quantile
from dsel.objective.losses.registry import find_loss
from dsel.sklearn import SubsetRegressor
from tests.cli_runner import call


def numbers(m: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """Return columns, of which one moves the numbers and another one their spread."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(m, 6))
    return X, X[:, 1] + (1.0 + (X[:, 4] > 0)) * rng.exponential(size=m)


@pytest.fixture
def job(tmp_path: Path) -> Path:
    X, y = numbers()
    ingest_arrays(X, tmp_path / "store", y=y[:, None])
    values = {
        "store": str(tmp_path / "store"), "k": 2, "method": "forward", "out": str(tmp_path / "result"),
        "loss": {"quantile": {"level": 0.9}}, "cluster": {"local": {"workers": 1, "memory": "1GiB"}},
    }  # fmt: skip
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


@pytest.mark.parametrize(
    ("named", "loss"),
    [
        ({"quantile": {"level": 0.9}}, Quantile(0.9)),
        ({"quantile": {"level": 0.2, "width": 1}}, Quantile(0.2, 1.0)),
        ({"quantile": {}}, Quantile()),
        ({"huber": None}, Huber()),
        ({"huber": {"delta": 2}}, Huber(2.0)),
    ],
)
def test_a_name_with_parameters_is_the_loss(named: Any, loss: Any) -> None:
    assert find_loss(named) == loss


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"quantile": {"levl": 0.9}}, "quantile has no parameter 'levl'. Did you mean 'level'"),
        ({"poisson": {"delta": 1.0}}, "poisson has no parameter 'delta'. It has none"),
        ({"quantile": {"level": "high"}}, "level is 'high', and it is a number"),
        ({"quantile": {"level": 2}}, "level is 2.0; it is between 0 and 1"),
        ({"huber": {"delta": -1}}, "delta is -1.0; it is a finite number > 0"),
        ({"hubr": {"delta": 1}}, "There is no loss 'hubr'"),
        ({"huber": 2.0}, "not one name with its parameters"),
        ({"huber": {}, "quantile": {}}, "not one name with its parameters"),
        ({}, "not one name with its parameters"),
    ],
)
def test_wrong_parameters_are_named(wrong: Any, message: str) -> None:
    X, y = numbers(20)
    with pytest.raises(OptionError) as error:
        dsel.select(X, y, k=1, loss=wrong)
    assert message in str(error.value)


@pytest.mark.usefixtures("no_pictures")
def test_a_job_file_and_the_command_line_set_them_and_the_result_has_them(job: Path, tmp_path: Path) -> None:
    X, y = numbers()
    assert call("run", job)[0] == 0
    found = dsel.open_selection(tmp_path / "result")
    direct = dsel.select(X, y, k=2, method="forward", loss=Quantile(0.9))
    assert found.loss == direct.loss
    assert found.error == pytest.approx(direct.error)
    assert (y < np.ravel(found.predict(X))).mean() == pytest.approx(0.9, abs=0.02)
    assert "level: 0.9" in found.report(tmp_path / "report.html").read_text()
    assert call("predict", tmp_path / "result", tmp_path / "store", tmp_path / "predicted")[0] == 0
    code, text, _ = call("run", job, "--loss", "{huber: {delta: 1.5}}", "--out", tmp_path / "other", "--json")
    assert code == 0
    assert json.loads(text)["loss_parameters"] == {"delta": 1.5}
    assert call("plan", job, "--loss", "quantile")[0] == 0
    code, _, said = call("plan", job, "--loss", "{quantile: {level: 1.9}}")
    assert code != 0
    assert "level is 1.9; it is between 0 and 1" in said


def test_a_proof_in_the_folder_is_about_the_same_level(job: Path, tmp_path: Path) -> None:
    X, y = numbers()
    assert call("run", job)[0] == 0
    assert call("certify", tmp_path / "result")[0] == 0
    direct = dsel.certify(dsel.select(X, y, k=2, method="forward", loss=Quantile(0.9)), X, y)
    (row,) = dsel.open_selection(tmp_path / "result").certificate
    assert row["proven"]
    assert row["value"] == pytest.approx(direct.certificate[-1]["value"], rel=1e-9)


def test_estimators_and_stability_take_them() -> None:
    X, y = numbers()
    model = SubsetRegressor(2, loss={"quantile": {"level": 0.9}}).fit(X, y)
    assert (y < model.predict(X)).mean() == pytest.approx(0.9, abs=0.02)
    found = dsel.stability(X, y, k=2, method="forward", loss={"quantile": {"level": 0.9}}, samples=4, parts=8)
    assert found.request["loss"] == {"quantile": {"level": 0.9}}
