"""What commands print about jobs and results: init, run, status, show and compare."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

import dsel
from dsel.data.ingest import ingest, ingest_arrays
from dsel.errors import DataError, MissingInputError, OptionError, OutputError
from dsel.storage.locks import locked
from tests.cli.test_cli import invoke

#: It would change the title of the terminal, and forge a line.
HOSTILE = "bad\x1b]0;title\x07\nlabel"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a store, a job file that `dsel init` wrote, its result, and a result of another method."""
    root = tmp_path_factory.mktemp("answers")
    X = np.random.default_rng(0).normal(size=(60, 6))
    y = X @ [3.0, 2.0, 0.0, 1.0, 0.5, 0.0]
    frame = pd.DataFrame(X, columns=["a", "b", "c", HOSTILE, "e", "f"])
    ingest_arrays(frame.to_numpy(), root / "data.zarr", y=y[:, None], features=list(frame))
    invoke("init", root / "data.zarr", "--out", root / "job.yaml", "--k", 3, "--method", "omp")
    invoke("run", root / "job.yaml")
    dsel.select(root / "data.zarr", k=2, method="forward").save(root / "other")
    return root


class TestInit:
    @pytest.mark.usefixtures("no_workers")
    def test_the_job_runs_on_a_store_with_missing_values(self, tmp_path: Path) -> None:
        frame = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 4)), columns=list("abcy"))
        frame.iloc[3, 1] = np.nan
        dsel.ingest(frame, tmp_path / "data.zarr", target="y")
        invoke("init", tmp_path / "data.zarr", "--out", tmp_path / "job.yaml", "--method", "forward")
        assert "# X has 1 missing value.\nmissing: mean\n" in (tmp_path / "job.yaml").read_text()
        invoke("run", tmp_path / "job.yaml")

    def test_it_writes_a_job_that_runs_and_that_says_what_can_be_changed(self, folder: Path) -> None:
        text = (folder / "job.yaml").read_text()
        assert yaml.safe_load(text)["k"] == 3
        assert "60 samples x 6 features" in text
        for key in ("options:", "include:", "certify:", "slurm:", "kubernetes:", "seed:"):
            assert key in text
        assert dsel.open_selection(folder / "job.result").k == 3

    def test_every_line_that_is_commented_out_is_right(self, folder: Path) -> None:
        text = (folder / "job.yaml").read_text()
        for line in ("options:\n#   seconds: 600", "include: [a]", "certify: {time: 10m}"):
            assert f"# {line}" in text
            key = yaml.safe_load(line.replace("#  ", " "))
            assert set(key) <= set(yaml.safe_load(text)) | {"options", "include", "certify"}

    def test_a_number_in_place_of_an_automatic_k_replaces_its_rule_too(self, folder: Path) -> None:
        text = (folder / "job.yaml").read_text().replace("k: 3", "k: auto\nmax_k: 4\nchoose_k: bic")
        job = folder / "auto.yaml"
        job.write_text(text)
        invoke("plan", job, "--k", 2)

    def test_a_job_for_classes_names_their_loss(self, tmp_path: Path) -> None:
        frame = pd.DataFrame({"a": range(8), "b": [1, 5, 2, 4, 3, 1, 2, 2], "y": list("nynynyny")})
        dsel.ingest(frame, tmp_path / "data.zarr", target="y")
        invoke("init", tmp_path / "data.zarr", "--out", tmp_path / "job.yaml")
        text = (tmp_path / "job.yaml").read_text()
        assert "y has 2 classes" in text
        (tmp_path / "job.yaml").write_text(text.replace("# loss: logistic", "loss: logistic"))
        invoke("run", tmp_path / "job.yaml")

    def test_the_penalty_of_the_job_can_be_replaced(self, folder: Path) -> None:
        invoke("run", folder / "job.yaml", "--lam", 2.5, "--out", folder / "ridge")
        assert dsel.open_selection(folder / "ridge").lam == 2.5
        assert "1 task" in invoke("plan", folder / "job.yaml", "--lam", 2.5)

    def test_the_method_of_the_job_can_be_replaced(self, folder: Path, tmp_path: Path) -> None:
        invoke("run", folder / "job.yaml", "--method", "forward", "--out", folder / "forward")
        assert dsel.open_selection(folder / "forward").method == "forward"
        job = yaml.safe_load((folder / "job.yaml").read_text())
        job |= {"store": str(folder / "data.zarr"), "method": "poss", "options": {"iterations": 9}}
        (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
        for command in ("run", "plan"):
            with pytest.raises(OptionError, match=r"forward has no option 'iterations'.*leave options out"):
                invoke(command, tmp_path / "job.yaml", "--method", "forward")

    def test_it_does_not_replace_a_file_unless_told(self, folder: Path, tmp_path: Path) -> None:
        (tmp_path / "job.yaml").touch()
        with pytest.raises(OutputError, match="overwrite"):
            invoke("init", folder / "data.zarr", "--out", tmp_path / "job.yaml")
        invoke("init", folder / "data.zarr", "--out", tmp_path / "job.yaml", "--overwrite")
        assert (tmp_path / "job.yaml").read_text()

    def test_it_refuses_what_would_not_run(self, folder: Path, tmp_path: Path) -> None:
        for arguments in (["--k", 7], ["--method", "two-stage"], ["--method", "pos"]):
            with pytest.raises(OptionError):
                invoke("init", folder / "data.zarr", "--out", tmp_path / "job.yaml", *arguments)
        assert not list(tmp_path.iterdir())


class TestStatus:
    def test_a_finished_job_says_so_and_names_its_result(self, folder: Path) -> None:
        said = invoke("status", folder / "job.result")
        assert "finished" in said
        assert "job: omp, k = 3" in said
        assert f"dsel show {folder / 'job.result'}" in said
        found = json.loads(invoke("status", folder / "job.result", "--json"))
        assert found["state"] == "finished"
        assert found["r2"] == pytest.approx(dsel.open_selection(folder / "job.result").r2)

    def test_a_proof_is_named_next_to_the_run_of_the_job(self, folder: Path) -> None:
        run = json.loads(invoke("status", folder / "job.result", "--json"))
        for command in ("certify", "alternatives", "certify"):
            invoke(command, folder / "job.result")
            said = invoke("status", folder / "job.result").splitlines()
            found = json.loads(invoke("status", folder / "job.result", "--json"))
            assert (found["state"], found["command"], found["selected"]["run"]) == ("finished", command, run["run"])
            assert [line.partition(",")[0] for line in said if ", process" in line] == [
                f"run: {run['run']}", f"{command}: {found['run']}"
            ]  # fmt: skip

    def test_a_run_that_holds_a_folder_is_starting(self, tmp_path: Path) -> None:
        with locked(tmp_path / "result", "run"):
            assert "starting: a run holds this folder" in invoke("status", tmp_path / "result")
        with pytest.raises(MissingInputError, match="writes there once its data are open"):
            invoke("status", tmp_path / "result")

    @pytest.mark.parametrize("command", ["status", "show"])
    def test_a_job_file_stands_for_its_result(self, folder: Path, command: str) -> None:
        assert (folder / "job.yaml").is_file()
        assert invoke(command, folder / "job.yaml") == invoke(command, folder / "job.result")

    def test_a_job_that_failed_says_why(self, tmp_path: Path) -> None:
        X = np.random.default_rng(0).normal(size=(30, 4))
        X[3, 1] = np.nan
        np.savez(tmp_path / "data.npz", X=X, Y=X[:, 0])
        ingest(tmp_path / "data.npz", tmp_path / "data.zarr")
        invoke("init", tmp_path / "data.zarr", "--out", tmp_path / "job.yaml")
        job = tmp_path / "job.yaml"
        job.write_text(job.read_text().replace("missing: mean", "missing: refuse"))
        with pytest.raises(DataError) as error:
            invoke("run", tmp_path / "job.yaml")
        said = invoke("status", tmp_path / "job.result")
        assert "failed" in said
        assert f"message: {error.value}" in said


class TestShow:
    def test_it_prints_labels_and_escapes_them(self, folder: Path) -> None:
        said = invoke("show", folder / "job.result")
        assert r"Chosen, in order of gain: a, b, bad\x1b]0;title\x07\nlabel" in said
        assert "\x1b" not in said

    def test_json_has_coefficients_and_the_labels_of_every_size(self, folder: Path) -> None:
        found = json.loads(invoke("show", folder / "job.result", "--json"))
        saved = dsel.open_selection(folder / "job.result")
        np.testing.assert_allclose(found["coefficients"], saved.coefficients)
        assert found["front"][-1]["labels"] == ["a", "b", HOSTILE]

    def test_the_cost_is_a_detail(self, folder: Path) -> None:
        assert "planned and measured" not in invoke("show", folder / "job.result")
        assert "planned and measured" in invoke("show", folder / "job.result", "--details")
        assert "planned and measured" in (folder / "job.result" / "run.log").read_text()


class TestCompare:
    def test_it_prints_the_columns_in_common_and_the_options_that_differ(self, folder: Path) -> None:
        said = invoke("compare", folder / "job.result", folder / "other")
        assert "In common (2): a, b" in said
        assert "omp" in said
        found = json.loads(invoke("compare", folder / "job.result", folder / "other", "--json"))
        assert found["only_first"] == [HOSTILE]
        assert found["options"]["k"] == [3, 2]
        assert found["options"]["method"] == ["omp", "forward"]

    def test_options_of_the_machine_are_the_last_line_and_no_difference_of_methods(self, folder: Path) -> None:
        store, out = folder / "data.zarr", folder / "memory"
        for name, memory in (("small", 1 << 24), ("large", 1 << 25)):
            dsel.select(store, k=2, memory=memory, iterations=9).save(out / name)
        said = invoke("compare", out / "small", out / "large").splitlines()
        assert said[-1] == "On the machine: options.memory 16.00 MiB, 32.00 MiB"
        found = json.loads(invoke("compare", out / "small", out / "large", "--json"))
        assert (found["options"], found["machine"]) == ({}, {"options.memory": [1 << 24, 1 << 25]})
        assert "options.memory" not in invoke("compare", folder / "other", out / "small")

    def test_it_says_if_the_data_differ(self, folder: Path, tmp_path: Path) -> None:
        X = pd.DataFrame(np.random.default_rng(1).normal(size=(50, 6)), columns=list("abcdef"))
        dsel.select(X, X["a"], k=1, method="omp").save(tmp_path / "third")
        assert "note: the data differ" in invoke("compare", folder / "other", tmp_path / "third")


class TestPlan:
    def test_a_read_of_new_rows_alone_is_part_of_a_pass(self, tmp_path: Path) -> None:
        X = np.random.default_rng(0).normal(size=(240, 4))
        store, job = tmp_path / "data.zarr", tmp_path / "job.yaml"
        ingest_arrays(X[:200], store, y=X[:200, :1])
        job.write_text(f"store: {store}\nk: 2\nmethod: forward\nout: {{folder: {tmp_path / 'runs'}}}\n")
        for start in (200, 220):
            invoke("run", job)
            dsel.append(X[start : start + 20], store, y=X[start : start + 20, :1])
        plan = invoke("plan", job)
        assert "\nGram matrix: part of a pass, " in plan
        assert "\nin all: at least part of a pass, " in plan
        invoke("run", job)
        said = invoke("show", tmp_path / "runs", "--details")
        assert "planned and measured: at least part of a pass and part of a pass, " in said
