"""deploy/slurm as an operator uses it, on a real Slurm that the test starts on this machine."""

from __future__ import annotations

import math
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import dsel
from tests.deploy.one_host_slurm import NODES, one_host_slurm, why_not
from tests.deploy.programs import HELD_READS, HELD_SEARCH, ROOT, at_start, commands
from tests.stores import make_store, regression

DEPLOY = ROOT / "deploy" / "slurm"
X, Y = regression(m=3000)
SEARCH = {"iterations": 1_000_000, "exchange_every": 50_000}
#: Only a defect takes so long, on a machine however busy.
LIMIT = 400.0

pytest.importorskip("dask_jobqueue")
pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))


class Site:
    """A user's folder at a site with Slurm. Passes and searches wait until the test lets them continue."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        self.may_read, self.may_search = folder / "may-read", folder / "may-search"
        at_start(folder / "worker", HELD_READS.format(gate=str(self.may_read)))
        held = at_start(folder / "driver", HELD_SEARCH.format(gate=str(self.may_search)))
        path = commands(folder / "bin")
        (folder / "setup.sh").write_text(f"export PATH='{path}':$PATH PYTHONPATH='{held}:{ROOT}'\n")
        make_store(folder / "data.zarr", X, Y, chunks=(100, 24))
        job = {"store": "data.zarr", "k": 5, "options": SEARCH, "checkpoint_seconds": 0.2, "out": "result"}
        (folder / "job.yaml").write_text(yaml.safe_dump(job))
        self.environment = {
            **environment, "DSEL_JOB": str(folder / "job.yaml"), "DSEL_SETUP": str(folder / "setup.sh"),
            "DASK_DISTRIBUTED__DEPLOY__LOST_WORKER_TIMEOUT": "1s",
        }  # fmt: skip

    def call(self, *command: str, **more: str) -> str:
        found = self.try_to_call(*command, **more)
        assert found.returncode == 0, found.stderr
        return found.stdout.strip()

    def try_to_call(self, *command: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=self.folder, env={**self.environment, **more}, capture_output=True, text=True, timeout=LIMIT
        )

    def queue(self) -> list[tuple[str, str, str, str]]:
        """Id, name, state and node of every job."""
        lines = self.call("squeue", "--noheader", "--format=%i|%j|%T|%N").splitlines()
        return [tuple(line.split("|")) for line in lines]  # type: ignore[misc]

    def workers(self) -> dict[str, str]:
        """Running worker jobs, and where."""
        return {i: node for i, name, state, node in self.queue() if name.startswith("dsel-") and state == "RUNNING"}

    def state(self, job: str) -> str:
        return dict((i, s) for i, _, s, _ in self.queue()).get(job, "GONE")

    def logs(self) -> list[str]:
        return [path.read_text() for path in (*self.folder.glob("dsel-*.log"), *self.folder.glob("result/run.log"))]

    def log(self) -> str:
        return "".join(self.logs())

    def start_again(self, job: str) -> None:
        """Start a job that is queued again, without Slurm's two minutes.

        Slurm refuses while the job's first shell ends, and then waits two minutes by itself: so ask until it runs. A
        job that starts in the second in which it was queued again fails, as its credential is revoked in that second.
        """
        asked = -math.inf

        def runs_again() -> bool:
            nonlocal asked
            if self.state(job) == "PENDING" and time.monotonic() > asked + 8.0:
                self.try_to_call("scontrol", "update", f"jobid={job}", "StartTime=now+3")
                asked = time.monotonic()
            return "(restart " in self.log()

        self.wait_for(runs_again)

    def wait_for(self, condition: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + LIMIT
        while not (found := condition()):
            jobs = (
                f"it did not happen: {self.call('scontrol', 'show', 'jobs')}\n" if time.monotonic() > deadline else ""
            )
            assert not jobs, jobs + "\n".join(text[-3000:] for text in self.logs())
            time.sleep(0.3)  # to ask is a process
        return found


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with one_host_slurm(tmp_path_factory.mktemp("slurm"), cores=2) as environment:
        yield environment


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return dsel.select(make_store(tmp_path_factory.mktemp("same") / "data.zarr", X, Y, chunks=(100, 24)), k=5, **SEARCH)


@pytest.fixture
def site(tmp_path: Path, slurm: dict[str, str]) -> Site:
    (folder := tmp_path / "a folder with spaces").mkdir()
    return Site(folder, slurm)


@pytest.mark.slow
def test_a_worker_cancelled_and_the_driver_pre_empted_change_nothing(site: Site, expected: Any) -> None:
    cluster = {
        "workers": 2, "memory": "600MB", "interface": "lo", "wait": "10m", "walltime": "00:10:00",
        "prologue": [f"export PYTHONPATH='{site.folder / 'worker'}:{ROOT}'"],
    }  # fmt: skip
    (site.folder / "cluster.yaml").write_text(yaml.safe_dump({"cluster": {"slurm": cluster}}))
    submit = ["sbatch", "--parsable", "--cpus-per-task=1", "--mem=1G", str(DEPLOY / "driver.sbatch")]
    driver = site.call(*submit, DSEL_CLUSTER=str(site.folder / "cluster.yaml"))

    site.wait_for(lambda: "2 of 2 workers are ready" in site.log())
    first = site.workers()
    assert set(first.values()) == set(NODES)
    (certificates,) = (site.folder / "result" / "workers").glob("tls-*")
    assert certificates.stat().st_mode & 0o777 == 0o700
    site.wait_for(lambda: "INFO statistics" in site.log())
    site.call("scancel", min(first))
    site.wait_for(lambda: set(site.workers()) - set(first))  # it is replaced during the pass
    assert "INFO search" not in site.log()
    site.may_read.touch()

    site.wait_for((site.folder / "result" / "checkpoint.json").exists)
    site.call("scontrol", "requeue", driver)
    site.wait_for(lambda: site.state(driver) == "PENDING")
    assert "Stopped by SIGTERM" in site.log()
    site.wait_for(lambda: len(site.queue()) == 1)  # the workers' jobs have ended with their driver
    site.may_search.touch()
    site.start_again(driver)
    site.wait_for(lambda: site.state(driver) == "GONE" or "result in" in site.log())

    assert "continuing from the checkpoint" in site.log()
    found = dsel.open_selection(site.folder / "result")
    assert found.indices == expected.indices
    assert found.error == expected.error
    assert found.front == expected.front
    logs = [path for path in (site.folder / "result" / "workers").iterdir() if path.is_file()]
    assert "tls://" in "".join(path.read_text() for path in logs)
    site.wait_for(lambda: not list((site.folder / "result" / "workers").glob("tls-*")))


@pytest.mark.slow
def test_everything_inside_one_allocation_over_its_time_limit(site: Site, expected: Any) -> None:
    job = site.call(
        "sbatch", "--parsable", "--nodes=2", "--ntasks=3", "--mem-per-cpu=700M", str(DEPLOY / "allocation.sbatch"),
        DSEL_INTERFACE="lo", DSEL_LOG_FORMAT="json",
    )  # fmt: skip
    site.wait_for((site.folder / "result" / "checkpoint.json").exists)
    assert "of 2 workers are ready" in site.log()
    assert '"tls://' in next(site.folder.glob(".dsel-*/scheduler.json")).read_text()
    site.call("scancel", "--batch", "--signal=USR1", job)  # as Slurm does two minutes before the limit
    site.wait_for(lambda: site.state(job) == "PENDING" and not list(site.folder.glob(".dsel-*")))
    assert "Stopped by SIGTERM" in site.log()
    site.may_search.touch()
    site.start_again(job)
    site.wait_for(lambda: "result in" in site.log())
    assert "continuing from the checkpoint" in site.log()
    assert dsel.open_selection(site.folder / "result").indices == expected.indices
    site.wait_for(lambda: not list(site.folder.glob(".dsel-*")))
