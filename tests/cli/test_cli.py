"""The commands that no job runs: ingest, info, generate, show, and what is said when they cannot."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import dsel
from dsel._lib.text import printable
from dsel._lib.versions import versions
from dsel.cli import app, application
from dsel.errors import MissingInputError, OptionError, OutputError
from tests.cli_runner import LIMIT, call

runner = CliRunner()
COMMANDS = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}


def invoke(*arguments: object) -> str:
    """Output of a command; an error of dsel is raised."""
    result = runner.invoke(app, [str(a) for a in arguments])
    if result.exception is not None:
        raise result.exception
    return result.output


def test_it_says_its_version_and_those_of_what_its_results_depend_on() -> None:
    said = dict(line.split(maxsplit=1) for line in invoke("--version").splitlines())
    assert said == versions()
    assert said["numpy"] == np.__version__


def test_a_path_may_begin_at_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    invoke("generate", "~/small.zarr", "--samples", "30", "--features", "4")
    assert (tmp_path / "small.zarr").is_dir()
    assert dsel.select("~/small.zarr", k=2).k == 2


def test_a_table_becomes_a_store_that_says_what_is_in_it(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).integers(0, 99, size=(50, 3))
    table = tmp_path / "table.csv"
    lines = ["name,a,b,yield", *(f"s{i},{r[0]},{r[1]},{r[2]}" for i, r in enumerate(rows))]
    table.write_text("\n".join(lines) + "\n")
    said = invoke("ingest", table, tmp_path / "t.zarr", "--target", "yield", "--index", "name")
    assert "50 samples x 2 features and 1 target" in said
    said = invoke("info", tmp_path / "t.zarr")
    assert "features: a, b" in said
    assert "targets: yield" in said
    store = dsel.open_store(tmp_path / "t.zarr")
    np.testing.assert_array_equal(store.x.read(0, 50), rows[:, :2])
    assert store.samples is not None
    assert store.samples[7] == "s7"
    with pytest.raises(OutputError):
        invoke("ingest", table, tmp_path / "t.zarr")


def test_generated_data_hold_what_the_generator_put_in(tmp_path: Path) -> None:
    said = invoke("generate", tmp_path / "g.zarr", "--samples", 2000, "--features", 40, "--informative", 4)
    assert "2000 x 40" in said
    truth = dsel.open_store(tmp_path / "g.zarr").attributes["dsel_generator"]["true_features"]
    assert set(dsel.select(tmp_path / "g.zarr", k=4).indices) == set(truth)


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match=r"selection\.json"):
        invoke("show", tmp_path)
    with pytest.raises(MissingInputError, match="no store"):
        invoke("info", tmp_path / "none.zarr")
    for command in ("resume", "certify"):
        with pytest.raises(MissingInputError, match="holds no job"):
            invoke(command, tmp_path)
    (tmp_path / "job.json").write_text("{}")
    with pytest.raises(MissingInputError, match="dsel resume"):  # half finished
        invoke("show", tmp_path)


def test_an_empty_path_is_not_the_folder_one_stands_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for arguments in (("run", "job.yaml", "--out", ""), ("info", ""), ("generate", "")):
        with pytest.raises(OptionError, match="path is empty"):
            invoke(*arguments)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_an_unexpected_error_is_printed_with_its_traceback_and_an_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], log_format: str
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("here")

    monkeypatch.setattr(application, "app", broken)
    monkeypatch.setattr(sys, "argv", ["dsel", "--debug", "demo"])
    monkeypatch.setitem(application._chosen, "log_format", log_format)
    with pytest.raises(SystemExit) as ended:
        application.main()
    assert ended.value.code == 70
    said = capsys.readouterr().err
    told = json.loads(said)["traceback"] if log_format == "json" else said
    assert "in broken" in told
    assert "unexpected error: ZeroDivisionError: here" in said


def test_an_unexpected_error_names_the_place_and_no_traceback_without_debug(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("here")

    monkeypatch.setattr(application, "app", broken)
    monkeypatch.setattr(sys, "argv", ["dsel", "demo"])
    with pytest.raises(SystemExit):
        application.main()
    what, where, remedy = capsys.readouterr().err.splitlines()
    assert what == "dsel: unexpected error: ZeroDivisionError: here"
    assert where.startswith("  where: dsel/cli/application.py, line ")
    assert "--debug" in remedy


def test_an_error_says_what_is_wrong_and_then_the_remedy(tmp_path: Path) -> None:
    code, out, err = call("info", tmp_path / "none.zarr")
    assert (code, out) == (66, "")
    what, remedy = err.splitlines()
    assert what.startswith("dsel: There is no store")
    assert remedy.startswith("  remedy: ")


def test_debug_adds_the_traceback_of_an_error_anywhere_in_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["dsel", "show", "none", "--debug"])
    with pytest.raises(SystemExit):
        application.main()
    assert "Traceback" in capsys.readouterr().err


def test_a_label_cannot_command_the_terminal() -> None:
    assert printable("a\x1b]52;c;ZWNobwo=\x07b\nINFO forged \u202e") == r"a\x1b]52;c;ZWNobwo=\x07b\nINFO forged \u202e"
    assert printable("temp [°C] 🌡") == "temp [°C] 🌡"


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_the_help_of_every_command_has_an_example(command: str) -> None:
    said = invoke(command, "--help")
    assert f"$ dsel {command}" in said


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_prints_json_for_programs(command: str) -> None:
    assert "--json" in invoke(command, "--help")


def test_the_shell_completes_commands() -> None:
    environment = {**os.environ, "_DSEL_COMPLETE": "complete_bash", "COMP_WORDS": "dsel co", "COMP_CWORD": "1"}
    program = [sys.executable, "-c", "import sys; sys.argv = ['dsel']; from dsel.cli import main; main()"]
    found = subprocess.run(program, capture_output=True, text=True, timeout=LIMIT, env=environment)
    assert sorted(found.stdout.split()) == ["compact", "compare"]


def test_help_names_every_command_and_is_quick_to_import() -> None:
    found = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "dsel", "--help"], capture_output=True, text=True, timeout=LIMIT
    )
    for command in ("run", "resume", "demo", "show", "info", "ingest", "generate"):
        assert command in found.stdout
    imported = {line.split("|")[-1].strip() for line in found.stderr.splitlines()}
    assert not {"numpy", "dask", "zarr", "numba", "xarray"} & imported
