"""A package on the path adds a method and a file format: the command line knows both."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

import dsel
from tests.cli_runner import LIMIT, Forked

METHOD = """
from pydantic import Field

from dsel.config.types import Int
from dsel.search.outcome import FrontPoint, SearchOutcome
from dsel.search.method import Method, ProblemSummary, Requirements, SearchTask
from dsel.search.method import Options


class StrideOptions(Options):
    stride: Int = Field(2, ge=1)


def requirements(problem: ProblemSummary, options: StrideOptions) -> Requirements:
    return Requirements(whole_gram=True, notes=(f"stride {options.stride} over {problem.n} columns",))


def run(task: SearchTask) -> SearchOutcome:
    members = tuple(range(0, task.objective.n, task.options.stride))[: task.k]
    return SearchOutcome((FrontPoint(len(members), task.objective.value(members), members),))


METHOD = Method("stride", "Choose columns at equal distances.", run, options=StrideOptions, requirements=requirements)
"""

FORMAT = """
import numpy as np

from dsel.data.formats.arrays import ArraySource
from dsel.data.formats.source import Format


def open_text(path, options):
    with path.open(encoding="utf-8") as file:
        values = np.loadtxt(file, ndmin=2)
    return ArraySource(values[:, 1:], values[:, :1], name=path.name, files=[path], dtype=options.dtype)


FORMAT = Format("text", (".txt",), open_text)
"""

ENTRY_POINTS = (
    "[dsel.methods]\n{name} = stride_plugin.method:METHOD\n[dsel.formats]\ntext = stride_plugin.text:FORMAT\n"
)


def install(site: Path, method: str = METHOD, name: str = "stride") -> None:
    """Write the package as pip would."""
    (site / "stride_plugin").mkdir(parents=True)
    (site / "stride_plugin" / "__init__.py").touch()
    (site / "stride_plugin" / "method.py").write_text(method)
    (site / "stride_plugin" / "text.py").write_text(FORMAT)
    info = site / "stride_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: stride-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS.format(name=name))


def with_site(site: Path) -> dict[str, str]:
    """Return the environment of a process that has the site on its path."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), str(Path(dsel.__file__).parents[1])])}


def run(site: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run `dsel` with the site on its path."""
    return subprocess.run(
        [sys.executable, "-m", "dsel", *map(str, arguments)],
        env=with_site(site), cwd=site, capture_output=True, text=True, timeout=600,
    )  # fmt: skip


def write_job(site: Path, **keys: object) -> Path:
    """Write a job file for the store of the site."""
    job = site / "job.yaml"
    job.write_text(yaml.safe_dump({"store": "data.zarr", "k": 3, "cluster": {"local": {"workers": 1}}, **keys}))
    return job


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the installed package, and a store that the command line wrote with its format."""
    site = tmp_path_factory.mktemp("site")
    install(site)
    np.savetxt(site / "data.txt", np.random.default_rng(0).normal(size=(50, 9)))
    done = run(site, "ingest", "data.txt", "data.zarr")
    assert done.returncode == 0, done.stderr
    assert "50 samples x 8 features and 1 target" in done.stdout
    return site


def test_a_run_knows_the_method(site: Path) -> None:
    done = run(site, "run", write_job(site, method="stride", options={"stride": 3}))
    assert done.returncode == 0, done.stderr
    assert set(dsel.open_selection(site / "job.result").indices) == {0, 3, 6}


def test_method_and_format_pass_the_conformance_kit(site: Path) -> None:
    script = (
        "import numpy as np\nfrom dsel.testing import check_format, check_method\n"
        "from stride_plugin.method import METHOD\nfrom stride_plugin.text import FORMAT\n"
        "values = np.loadtxt('data.txt')\ncheck_method(METHOD)\n"
        "check_format(FORMAT, 'data.txt', values[:, 1:], values[:, 0])\n"
    )
    subprocess.run([sys.executable, "-c", script], cwd=site, env=with_site(site), check=True, timeout=600)


#: Print the exit code, the output and the error of a plan of each job file. They share a process with the package.
PLANS = """
import json, sys
from tests.cli_runner import call

for job in sys.argv[1:]:
    print(json.dumps(call("plan", job)))
"""
WRONG: list[tuple[dict[str, object], str]] = [
    ({"method": "qwerty"}, r"There is no method 'qwerty'\. Known: poss, .*, stride"),
    ({"method": "Strides"}, r"Did you mean 'stride'\?"),
    ({"method": "stride", "options": {"stride": 0}}, "Options of stride: 'stride' is 0: it must be at least 1"),
    ({"method": "stride", "options": {"stripe": 1}}, r"stride has no option 'stripe'\. Did you mean 'stride'\?"),
]


def test_a_plan_and_errors_name_it(site: Path) -> None:
    asked = [{"method": "stride", "options": {"stride": 3}}, *(keys for keys, _ in WRONG)]
    jobs = [write_job(site, **keys).rename(site / f"job-{i}.yaml") for i, keys in enumerate(asked)]
    done = subprocess.run(
        [sys.executable, "-c", PLANS, *jobs], env=with_site(site), cwd=site, capture_output=True, text=True, timeout=600
    )
    (code, out, err), *answers = map(json.loads, done.stdout.splitlines())
    assert code == 0, err
    assert "note: stride 3 over 8 columns" in out
    for (code, _, said), (_, message) in zip(answers, WRONG, strict=True):
        assert code == 64
        assert re.search(message, said.replace("\n  remedy: ", " ")), said


@pytest.mark.parametrize(
    ("code", "name", "method", "message"),
    [
        (
            "import no_such_module",
            "stride",
            "stride",
            "stride-plugin .* cannot be imported: ModuleNotFoundError",
        ),
        ("METHOD = 3", "stride", "stride", "package stride-plugin .* is not a dsel.search.method.Method"),
        (METHOD, "strides", "strides", "package stride-plugin .* calls itself 'stride'"),
        (METHOD, "omp", "omp", "packages dsel and stride-plugin have a method of the same name, 'omp'"),
    ],
)
def test_a_package_that_is_wrong_is_named(tmp_path: Path, code: str, name: str, method: str, message: str) -> None:
    install(tmp_path, code, name)
    script = (
        "import numpy as np, dsel, re\nfrom dsel.errors import DselError\n"
        "X = np.random.default_rng(0).normal(size=(20, 4))\n"
        f"try: dsel.plan(X, k=2, method={method!r}, calibrate=False)\n"
        f"except DselError as error: assert re.search({message!r}, str(error)), error\n"
        "else: assert False\n"
        "dsel.plan(X, k=2, method='forward', calibrate=False)  # others are not affected\n"
    )
    process = Forked(script, cwd=tmp_path)
    _, err = process.communicate(LIMIT)
    assert process.returncode == 0, err
