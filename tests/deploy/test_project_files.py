"""The files for services that no test can reach: workflows, the conda recipe, the citation. Their schemas come with
check-jsonschema; without it, their structure is checked alone."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

from tests.deploy.programs import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def workflow(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / ".github" / "workflows" / f"{name}.yml").read_text())
    return found


def steps(jobs: dict[str, Any]) -> list[dict[str, Any]]:
    return [step for job in jobs.values() for step in job["steps"]]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_has_few_rights_a_time_limit_and_pinned_actions(path: Path) -> None:
    found = yaml.safe_load(path.read_text())
    assert found["permissions"] == {"contents": "read"}
    for job in found["jobs"].values():
        assert job["timeout-minutes"] <= 90
        assert re.fullmatch(r"ubuntu-\d\d\.\d\d", job["runs-on"])  # not the newest, which changes
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step)
    used = re.findall(r"uses: (\S+)(.*)", path.read_text())
    assert len(used) == sum("uses" in step for step in steps(found["jobs"]))
    for action, comment in used:
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", action)
        assert re.fullmatch(r"  # v\d+\.\d+\.\d+", comment)


def test_the_tests_run_on_every_supported_python() -> None:
    pythons = workflow("tests")["jobs"]["tests"]["strategy"]["matrix"]["python"]
    assert pythons == ["3.11", "3.12", "3.13", "3.14"]
    assert f">={pythons[0]}" == PROJECT["requires-python"]


def test_a_release_needs_no_password_and_only_its_last_job_may_publish() -> None:
    found = workflow("release")
    build, publish = found["jobs"]["build"], found["jobs"]["publish"]
    assert "secrets." not in (ROOT / ".github" / "workflows" / "release.yml").read_text()
    assert "permissions" not in build
    assert publish["permissions"] == {"id-token": "write"}
    assert publish["needs"] == "build"
    assert publish["environment"] == "pypi"
    assert all("run" not in step for step in publish["steps"])  # nothing of the project runs with the right to publish
    check = next(step["run"] for step in build["steps"] if step.get("name") == "The tag is the version")
    for tag, fits in ((f"v{PROJECT['version']}", True), ("v0.0.9", False)):
        command = check.replace("python ", f"{sys.executable} ", 1)
        done = subprocess.run(command, shell=True, cwd=ROOT, env={"GITHUB_REF_NAME": tag}, capture_output=True)
        assert (done.returncode == 0) == fits


def test_coming_versions_are_tried_every_week() -> None:
    found = workflow("nightly-wheels")
    (schedule,) = found[True]["schedule"]  # YAML 1.1 reads the key `on` as true
    assert re.fullmatch(r"\d+ \d+ \* \* [0-6]", schedule["cron"])
    commands = " ".join(step.get("run", "") for step in steps(found["jobs"]))
    assert all(re.search(rf"\b{name}\b", commands) for name in ("numpy", "dask", "zarr", "scikit-learn", "pytest"))


def test_the_commands_of_workflows_exist() -> None:
    for path in WORKFLOWS:
        for step in steps(yaml.safe_load(path.read_text())["jobs"]):
            for module in re.findall(r"python -m (pipelines[\w.]*)", step.get("run", "")):
                assert find_spec(module) is not None
            for file in re.findall(r"^\.ci/\w+", step.get("run", "")):
                assert (ROOT / file).is_file()


def test_the_conda_package_depends_on_what_the_wheel_does() -> None:
    recipe = yaml.safe_load((ROOT / "deploy" / "conda" / "recipe.yaml").read_text())
    assert recipe["context"]["version"] == PROJECT["version"]
    assert recipe["build"]["python"]["entry_points"] == [f"dsel = {PROJECT['scripts']['dsel']}"]
    renamed = {"dask": "dask-core"}  # `dask` is a metapackage there
    wanted = {renamed.get(r.name, r.name): str(r.specifier) for r in map(Requirement, PROJECT["dependencies"])}
    wanted["python"] = PROJECT["requires-python"]
    assert dict(line.split() for line in recipe["requirements"]["run"]) == wanted
    assert (ROOT / recipe["about"]["license_file"]).is_file()


def test_the_citation_names_this_version() -> None:
    cited = yaml.safe_load((ROOT / "deploy" / "docs" / "CITATION.cff").read_text())
    assert cited["version"] == PROJECT["version"]
    assert cited["license"] == PROJECT["license"]
    assert [author["name"] for author in cited["authors"]] == [author["name"] for author in PROJECT["authors"]]


SCHEMAS = {
    "github-workflows": WORKFLOWS,
    "dependabot": [ROOT / ".github" / "dependabot.yml"],
    "citation-file-format": [ROOT / "deploy" / "docs" / "CITATION.cff"],
}


@pytest.mark.skipif(find_spec("check_jsonschema") is None, reason="check-jsonschema is not installed")
@pytest.mark.parametrize("schema", SCHEMAS)
def test_the_files_have_their_schemas(schema: str) -> None:
    command = [
        sys.executable,
        "-m",
        "check_jsonschema",
        "--builtin-schema",
        f"vendor.{schema}",
        "--force-filetype",
        "yaml",
    ]
    done = subprocess.run([*command, *map(str, SCHEMAS[schema])], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
