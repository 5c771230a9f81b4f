"""The container image, as far as it can be tried without a container engine."""

from __future__ import annotations

import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.deploy.programs import ROOT

KUBERNETES = ROOT / "deploy" / "kubernetes"
DOCKERFILE = KUBERNETES / "Dockerfile"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = ("cloud", "kubernetes", "metrics")


def instructions() -> list[tuple[str, str]]:
    """Of the Dockerfile, without comments."""
    lines = re.sub(r"\\\n", " ", DOCKERFILE.read_text()).splitlines()
    return [tuple(line.split(maxsplit=1)) for line in lines if line and not line.startswith("#")]  # type: ignore[misc]


def arguments(instruction: str) -> list[str]:
    return [argument for name, argument in instructions() if name == instruction]


def locked(name: str) -> dict[str, tuple[str, list[str]]]:
    """Version and hashes of each package in a lock file."""
    text = re.sub(r"\s*\\\n\s*", " ", (KUBERNETES / name).read_text())
    entries = [line.split() for line in text.splitlines() if not line.startswith("#")]
    return {canonicalize_name(e[0].split("==")[0]): (e[0].split("==")[1], e[1:]) for e in entries}


def test_the_base_image_is_named_by_a_digest_and_the_build_fails_without_one() -> None:
    first, *others = arguments("FROM")
    assert re.fullmatch(r"\$\{BASE_IMAGE\}@\$\{BASE_DIGEST:\?\S+\} AS base", first)  # FROM ends at a space
    assert [stage.split()[0] for stage in others] == ["base", "base"]
    assert "BASE_DIGEST" in arguments("ARG")  # no default
    assert re.search(r"^BASE_IMAGE=\S+/python:\d+\.\d+\.\d+-slim-\w+$", "\n".join(arguments("ARG")), re.MULTILINE)


def test_everything_it_installs_is_pinned_with_hashes() -> None:
    installs = [argument for argument in arguments("RUN") if "pip install" in argument or "python install" in argument]
    for argument in installs:
        assert "--require-hashes" in argument or ("--no-index" in argument and "--no-deps" in argument), argument
    (build,) = [argument for argument in arguments("RUN") if "pip wheel" in argument]
    assert "--no-build-isolation" in build
    runtime, tools = locked("requirements.lock"), locked("build-requirements.lock")
    optional = PROJECT["project"]["optional-dependencies"]
    wanted = [*PROJECT["project"]["dependencies"], *(r for extra in EXTRAS for r in optional[extra])]
    for lock, requirements in ((runtime, wanted), (tools, PROJECT["build-system"]["requires"])):
        for requirement in map(Requirement, requirements):
            assert requirement.specifier.contains(lock[canonicalize_name(requirement.name)][0]), requirement
        for name, (_, hashes) in lock.items():
            assert hashes, name
            assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", text) for text in hashes), name
    for name in ("requirements.lock", "build-requirements.lock"):
        assert "://" not in (KUBERNETES / name).read_text()


def test_it_does_not_run_as_root_and_says_what_it_is() -> None:
    assert int(arguments("USER")[-1]) > 0
    assert [name for name, _ in instructions()].index("USER") < [name for name, _ in instructions()].index("CMD")
    (labels,) = map(shlex.split, arguments("LABEL"))
    said = dict(label.removeprefix("org.opencontainers.image.").split("=", 1) for label in labels)
    assert {"title", "description", "licenses", "version", "revision", "created", "base.name", "base.digest"} <= set(
        said
    )
    assert (said["title"], said["licenses"]) == (PROJECT["project"]["name"], PROJECT["project"]["license"])
    assert said["description"] == PROJECT["project"]["description"]
    assert f"VERSION={PROJECT['project']['version']}" in arguments("ARG")


def test_the_bill_of_materials_lists_what_is_installed(tmp_path: Path) -> None:
    """In SPDX 2.3: every distribution and Debian package, each once, and the interpreter."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "0", "PYTHONPATH": str(ROOT)}
    for name in ("first.json", "second.json"):
        command = [sys.executable, str(KUBERNETES / "sbom.py"), str(tmp_path / name)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "first.json").read_text() == (tmp_path / "second.json").read_text()
    bill = json.loads((tmp_path / "first.json").read_text())
    packages = {package["SPDXID"]: package for package in bill["packages"]}
    assert len(packages) == len(bill["packages"])
    assert all(re.fullmatch(r"SPDXRef-[A-Za-z0-9.-]+", name) for name in packages)
    versions = {package["name"]: package["versionInfo"] for package in bill["packages"]}
    for name in ("dsel", "numpy", "zarr"):
        assert versions[name] == version(name)
    assert versions["cpython"] == platform.python_version()
    if shutil.which("dpkg-query"):
        assert any("pkg:deb/debian/" in str(package["externalRefs"]) for package in bill["packages"])
    described, *dependencies = bill["relationships"]
    assert described["relatedSpdxElement"] == "SPDXRef-python-dsel"
    assert {d["relatedSpdxElement"] for d in dependencies} == packages.keys() - {"SPDXRef-python-dsel"}


def test_what_it_copies_is_there_and_holds_no_data_or_private_settings() -> None:
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
    names = [name for name, _ in instructions()]
    begin, end = [i for i, name in enumerate(names) if name == "FROM"][1:]
    for name, argument in instructions()[begin:end]:
        if name == "COPY":
            *sources, target = shlex.split(argument)
            for source in sources:
                copied = Path(here(target)) / Path(source).name if target.endswith("/") else Path(here(target))
                copy = shutil.copytree if (ROOT / source).is_dir() else shutil.copy
                copy(ROOT / source, copied)
        elif name == "RUN":
            environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
            environment["PATH"] = f"{Path(sys.executable).resolve().parent}:{environment['PATH']}"
            done = subprocess.run(
                ["/bin/sh", "-c", here(argument)], env=environment, cwd=tmp_path, capture_output=True, text=True
            )
            assert done.returncode == 0, done.stderr[-3000:]
    image = tmp_path / "opt" / "dsel"
    assert any((image / "kernels").rglob("*.nbi"))
    for program in ("dsel", "dask"):
        assert subprocess.run([image / "bin" / program, "--help"], capture_output=True, cwd=tmp_path).returncode == 0
    bill = json.loads((image / "sbom.spdx.json").read_text())
    listed = {p["name"]: p["versionInfo"] for p in bill["packages"] if p["SPDXID"].startswith("SPDXRef-python-")}
    runtime = {name: version for name, (version, _) in locked("requirements.lock").items()}
    assert listed == {**runtime, "dsel": PROJECT["project"]["version"]}
