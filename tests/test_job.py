"""A job as the shell and a scheduler see it: results on disk, exit codes, interruption, lost workers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import yaml

import dsel
from dsel.cluster.compute import make_compute, peak_memory
from dsel.cluster.connect import LocalSpec, local_cluster
from dsel.data.source import make_source
from dsel.stats.gram import gram
from tests.stores import count_reads, make_store, reads_so_far, regression

X, Y = regression(m=3000)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return make_store(tmp_path / "data.zarr", X, Y, chunks=(100, 24))


def write_job(data: Path, **keys: Any) -> Path:
    job = {"store": data.name, "k": 5, "cluster": {"local": {"workers": 1, "memory": "600MB"}}, **keys}
    path = data.parent / "job.yaml"
    path.write_text(yaml.safe_dump(job))
    return path


def start(*arguments: Any, **kwargs: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "dsel", *map(str, arguments)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **kwargs,
    )  # fmt: skip


def run(*arguments: Any) -> tuple[int, str, str]:
    process = start(*arguments)
    out, err = process.communicate(timeout=300)
    return process.returncode, out, err


def wait_for(condition: Any, seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


class TestARunFromTheShell:
    def test_it_saves_and_prints_what_select_gives_and_says_when_it_is_done(self, store: Path) -> None:
        job = write_job(store, seed=4)
        code, out, err = run("run", job)
        assert code == 0, err
        expected = dsel.select(X, Y, k=5, seed=4)
        saved = dsel.open_selection(store.parent / "job.result")
        assert saved.indices == expected.indices
        assert saved.error == pytest.approx(expected.error, rel=1e-10)
        assert f"{saved.r2:.4%}" in out
        assert "MiB of" in err  # peak memory of the worker against its limit
        assert all(0 < peak < limit for peak, limit in saved.peak_memory.values())

        code, out, err = run("run", job)
        assert code == 0
        assert "nothing to do" in err
        code, out, err = run("show", store.parent / "job.result")
        assert f"{saved.r2:.4%}" in out

    def test_the_second_run_reads_saved_statistics_instead_of_the_data(self, store: Path) -> None:
        assert run("run", write_job(store), "--out", store.parent / "one")[0] == 0
        code, _, err = run("run", write_job(store, k=4), "--out", store.parent / "two")
        assert code == 0
        assert "the data are not read" in err
        assert dsel.open_selection(store.parent / "two").passes == 1  # the final check alone

    def test_a_folder_with_other_work_is_refused_and_kept(self, store: Path) -> None:
        assert run("run", write_job(store))[0] == 0
        code, _, err = run("run", write_job(store, k=3))
        assert code == 73
        assert "k was 5, now 3" in err
        assert dsel.open_selection(store.parent / "job.result").k == 5

    def test_changed_data_are_noticed(self, store: Path) -> None:
        assert run("run", write_job(store))[0] == 0
        make_store(store, X + 1, Y, chunks=(100, 24))
        code, _, err = run("run", write_job(store))
        assert code == 73
        assert "other data" in err


@pytest.mark.parametrize(
    ("keys", "code", "message"),
    [
        ({"method": "posss"}, 64, "Nearest: poss"),
        ({"kk": 3}, 64, "unknown key 'kk'"),
        ({"k": 0}, 64, "'k' is 0"),
        ({"k": 25}, 64, "k is 25"),
        ({"preprocess": "unity"}, 64, "Did you mean 'unit'"),
        ({"cluster": {"local": {"worker": 2}}}, 64, "Did you mean 'workers'"),
        ({"cluster": {"local": {"memory": "lots"}}}, 64, "memory is 'lots'"),
        ({"options": {"iteration": 5}}, 64, "Did you mean 'iterations'"),
        ({"store": "nowhere.zarr"}, 66, "nowhere.zarr"),
        ({"out": "/proc/nothing"}, 73, "cannot be written"),
        ({"cluster": {"local": {"memory": "50MB"}}}, 71, "limited to 0.05 GiB"),
    ],
)
def test_exit_codes_and_messages_before_any_worker_starts(
    store: Path, keys: dict[str, Any], code: int, message: str
) -> None:
    found, out, err = run("run", write_job(store, **keys))
    assert found == code, err
    assert message in err
    assert "Traceback" not in err
    assert "local workers" not in err
    assert not out


def test_nan_is_an_error_of_the_data_that_names_the_block(tmp_path: Path) -> None:
    bad = X.copy()
    bad[1234, 5] = np.nan
    store = make_store(tmp_path / "data.zarr", bad, Y, chunks=(100, 24))
    code, _, err = run("run", write_job(store))
    assert code == 65
    assert "row 1234, column 5" in err
    assert "rows 1200 to 1300" in err
    assert "Traceback" not in err
    assert run("run", write_job(store, missing="mean"), "--out", tmp_path / "filled")[0] == 0


LONG = {"iterations": 20_000_000, "exchange_every": 50_000}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return dsel.select(make_store(tmp_path_factory.mktemp("same") / "data.zarr", X, Y, chunks=(100, 24)), k=5, **LONG)


class TestInterruption:
    def interrupt(self, store: Path, number: signal.Signals, after: float) -> tuple[int, str]:
        """Start (or go on with) the job, send the signal once the search has run for a while."""
        log = store.parent / "job.result" / "run.log"
        seen = log.read_text().count("INFO search") if log.exists() else 0
        process = start("run", write_job(store, options=LONG, checkpoint_seconds=0.1))
        wait_for(lambda: process.poll() is not None or (log.exists() and log.read_text().count("INFO search") > seen))
        time.sleep(after)
        process.send_signal(number)
        _, err = process.communicate(timeout=120)
        return process.returncode, err

    def assert_same(self, store: Path, undisturbed: Any) -> None:
        code, _, err = run("resume", store.parent / "job.result")
        assert code == 0, err
        found = dsel.open_selection(store.parent / "job.result")
        assert found.front == undisturbed.front  # bit for bit
        assert found.trace == undisturbed.trace
        assert found.error == undisturbed.error
        assert found.iterations == undisturbed.iterations
        assert not (store.parent / "job.result" / "checkpoint.json").exists()

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_a_signal_leaves_a_checkpoint_exits_75_and_the_job_goes_on(
        self, store: Path, number: signal.Signals, undisturbed: Any
    ) -> None:
        code, err = self.interrupt(store, number, after=0.4)
        assert code == 75, err
        assert "Traceback" not in err
        state = json.loads((store.parent / "job.result" / "checkpoint.json").read_text())
        assert 0 < state["count"][0] < LONG["iterations"]
        self.assert_same(store, undisturbed)

    def test_killed_at_any_moment_the_job_goes_on_from_its_last_checkpoint(self, store: Path, undisturbed: Any) -> None:
        for after in (0.05, 0.3, 0.6):
            self.interrupt(store, signal.SIGKILL, after)
        self.assert_same(store, undisturbed)

    def test_control_c_leaves_no_process_behind(self, store: Path) -> None:
        """The terminal sends SIGINT to the whole group, workers included."""
        process = start("run", write_job(store, options={"iterations": 10**10}), start_new_session=True)
        group = os.getpgid(process.pid)
        log = store.parent / "job.result" / "run.log"
        wait_for(lambda: log.exists() and "INFO search" in log.read_text())
        os.killpg(group, signal.SIGINT)
        _, err = process.communicate(timeout=60)
        assert process.returncode == 75, err

        def alive() -> list[int]:
            return [p.pid for p in psutil.process_iter() if p.pid != os.getpid() and _group_of(p.pid) == group]

        wait_for(lambda: not alive(), seconds=10)


def _group_of(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return -1


def test_a_criterion_is_named_by_import_path(store: Path) -> None:
    (store.parent / "mine.py").write_text("def closeness(S):\n    return abs(sum(S) - 40) + len(S) / 100\n")
    job = write_job(store, criterion="mine:closeness", options={"iterations": 3000})
    found = subprocess.run(
        [sys.executable, "-m", "dsel", "run", str(job)], cwd=store.parent, capture_output=True, text=True, timeout=300
    )
    assert found.returncode == 0, found.stderr
    s = dsel.open_selection(store.parent / "job.result")
    assert sum(s.indices) == 40
    assert s.criterion == pytest.approx(len(s) / 100)
    code, _, err = run("run", write_job(store, criterion="mine:nothing"), "--out", store.parent / "other")
    assert code == 64
    assert "cannot be imported" in err


def test_two_runs_do_not_write_to_one_folder(store: Path) -> None:
    job = write_job(store, options={"iterations": 10**10})
    first = start("run", job)
    log = store.parent / "job.result" / "run.log"
    wait_for(lambda: log.exists() and "INFO search" in log.read_text())
    code, _, err = run("run", job)
    first.terminate()
    first.communicate(timeout=60)
    assert code == 73
    assert "Another run" in err


class TestTheCluster:
    def bits(self, statistics: Any) -> list[bytes]:
        return [
            np.ascontiguousarray(v).tobytes() for v in (statistics.K, statistics.B, statistics.mean_x, statistics.yy)
        ]

    def test_not_a_bit_depends_on_the_workers_and_each_chunk_is_read_once(self, store: Path) -> None:
        in_threads, _ = gram(make_source(str(store)))
        for workers in (1, 3):
            with local_cluster(LocalSpec(workers, "600MB")) as client:
                client.run(count_reads)
                found, _ = gram(make_source(str(store)), compute=make_compute(client))
                reads: dict[str, int] = {}
                for counted in client.run(reads_so_far).values():
                    for key, times in counted.items():
                        reads[key] = reads.get(key, 0) + times
                assert all(peak < limit for peak, limit in peak_memory(client).values())
            assert self.bits(found) == self.bits(in_threads)
            of_x = {key: times for key, times in reads.items() if key.startswith("X/c/")}
            assert of_x == {f"X/c/{i}/0": 1 for i in range(30)}

    def test_a_worker_killed_during_the_pass_changes_nothing(self, store: Path) -> None:
        expected, _ = gram(make_source(str(store)))
        killed = []
        with local_cluster(LocalSpec(2, "600MB")) as client:

            def kill_one(done: int, total: int) -> None:
                if not killed:
                    pid = next(iter(client.run(os.getpid).values()))
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)

            client.run(_slow_reads)
            found, _ = gram(make_source(str(store)), compute=make_compute(client, kill_one))
        assert killed
        assert self.bits(found) == self.bits(expected)


def _slow_reads() -> None:
    """Make the pass last long enough for something to happen in it."""
    from dsel.data.stored_array import StoredArray

    plain = StoredArray.read

    def read(self: Any, *args: Any, **kwargs: Any) -> Any:
        time.sleep(0.05)
        return plain(self, *args, **kwargs)

    StoredArray.read = read  # type: ignore[method-assign]


def test_the_demo_prints_a_result_worth_reading(tmp_path: Path) -> None:
    code, out, err = run("demo", "--out", tmp_path / "demo")
    assert code == 0, err
    assert "forward selection 0.422160" in out
    assert "POSS              0.438258" in out
