"""The container image, as far as it can be tried without a container engine."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.deploy.programs import ROOT

DOCKERFILE = ROOT / "deploy" / "kubernetes" / "Dockerfile"
CONSTRAINTS = ROOT / "deploy" / "kubernetes" / "constraints.txt"


def instructions() -> list[tuple[str, str]]:
    """Of the Dockerfile, without comments."""
    lines = re.sub(r"\\\n", " ", DOCKERFILE.read_text()).splitlines()
    return [tuple(line.split(maxsplit=1)) for line in lines if line and not line.startswith("#")]  # type: ignore[misc]


def pinned() -> dict[str, str]:
    lines = [line for line in CONSTRAINTS.read_text().splitlines() if not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in (line.split("==") for line in lines)}


def test_everything_in_it_is_pinned_and_it_does_not_run_as_root() -> None:
    assert all(re.match(r"\S+:\d+\.\d+\.\d+\S+", argument) for name, argument in instructions() if name == "FROM")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (install,) = [argument for name, argument in instructions() if "pip install" in argument]
    assert "--constraint" in install
    (extras,) = re.findall(r"\[([\w,]+)\]", install)
    wanted = [*project["dependencies"], *(r for e in extras.split(",") for r in project["optional-dependencies"][e])]
    for requirement in map(Requirement, wanted):
        assert requirement.specifier.contains(pinned()[canonicalize_name(requirement.name)]), requirement
    users = [argument for name, argument in instructions() if name == "USER"]
    assert int(users[-1]) > 0
    assert [name for name, _ in instructions()].index("USER") < [name for name, _ in instructions()].index("CMD")


def test_what_it_copies_is_there_and_holds_no_data_or_settings_of_ones_own() -> None:
    for name, argument in instructions():
        if name == "COPY" and not argument.startswith("--from"):
            *sources, _ = shlex.split(argument)
            for source in sources:
                assert (ROOT / source).exists(), source
                assert source not in (".", "./", "*")


@pytest.mark.skipif("DSEL_TEST_IMAGE" not in os.environ, reason="downloads 90 packages: set DSEL_TEST_IMAGE=1")
def test_its_steps_outside_a_container(tmp_path: Path) -> None:
    """COPY and RUN of the build stage, with /src and /opt in a folder; then what the image would start."""

    def here(text: str) -> str:
        return re.sub(r"(?<![\w.])/(src|opt)(?=/|\b)", rf"{tmp_path}/\1", text)

    (tmp_path / "src").mkdir()
    first = [i for i, (name, _) in enumerate(instructions()) if name == "FROM"][1]
    taken = 0
    for name, argument in instructions()[:first]:
        if name == "COPY":
            *sources, target = shlex.split(argument)
            for source in sources:
                place = Path(here(target)) / Path(source).name if target.endswith("/") else Path(here(target))
                copy = shutil.copytree if (ROOT / source).is_dir() else shutil.copy
                copy(ROOT / source, place)
        elif name == "RUN":
            environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
            environment["PATH"] = f"{Path(sys.executable).resolve().parent}:{environment['PATH']}"
            found = subprocess.run(
                ["/bin/sh", "-c", here(argument)], env=environment, cwd=tmp_path, capture_output=True, text=True
            )
            assert found.returncode == 0, found.stderr[-3000:]
            taken += 1
    assert taken == 4
    assert any((tmp_path / "opt" / "dsel" / "kernels").rglob("*.nbi"))
    programs = tmp_path / "opt" / "dsel" / "bin"
    for program in ("dsel", "dask"):
        assert subprocess.run([programs / program, "--help"], capture_output=True, cwd=tmp_path).returncode == 0
    listed = subprocess.run([programs / "pip", "freeze"], capture_output=True, text=True, cwd=tmp_path).stdout
    installed = dict(line.split("==") for line in listed.splitlines() if "==" in line)
    assert {canonicalize_name(n): v for n, v in installed.items() if n != "dsel"} == pinned()
