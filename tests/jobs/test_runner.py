"""A job as the shell and a scheduler see it: results on disk, exit codes, interruption, lost workers."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import threading
import time
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import llvmlite.binding as llvm
import numpy as np
import psutil
import pytest
import yaml
import zarr

import dsel
from dsel._lib.termination import Stopped, _handle, _state, on_force
from dsel.config.job import JobFile, read_job
from dsel.data.as_dataset import as_dataset
from dsel.data.store import reader
from dsel.engine.clusters.local import local_cluster
from dsel.engine.dask_engine import DaskEngine
from dsel.errors import ClusterError, DataError, Interrupted, MissingInputError, OutputError
from dsel.jobs import certify, runner
from dsel.jobs.checkpoint import Checkpoints
from dsel.jobs.locations import finished_job, identity_of, job_dataset, require_separate
from dsel.jobs.reporting import Reporter
from dsel.jobs.run_folder import RunFolder
from dsel.jobs.runner import resume_job, run_job
from dsel.jobs.signals import Interrupts
from dsel.passes.gram import gram_statistics
from dsel.search.exact.proof import Proof
from dsel.selection import pipeline
from dsel.storage.json_files import write_json
from dsel.storage.leftovers import machine
from dsel.storage.locks import Lock, is_free
from tests.cli_runner import LIMIT, call, run, start_held, wait_for
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


@pytest.mark.parametrize(
    "keys",
    [
        {"loss": "huber", "offset": "more"},
        {"k": "auto", "max_k": 2, "choose_k": {"folds": 3, "row_groups": "more"}},
        {"method": "kfold", "options": {"row_groups": "more"}},
    ],
)
def test_a_job_is_another_one_when_a_variable_that_it_names_has_changed(store: Path, keys: dict[str, Any]) -> None:
    def identity() -> Any:
        job = JobFile.model_validate({"store": store, "k": 2, **keys})
        return identity_of(job, job_dataset(job))

    values = zarr.open_group(store).create_array("more", data=np.arange(1.0, len(X) + 1.0), dimension_names=["sample"])
    first = identity()
    assert identity() == first
    values[:] = 1.0 + np.arange(len(X)) % 7
    assert identity() != first


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

        code, out, err = call("run", job)
        assert code == 0
        assert "nothing to do" in err
        code, out, err = call("show", store.parent / "job.result")
        assert f"{saved.r2:.4%}" in out

    @pytest.mark.usefixtures("no_workers")
    def test_next_to_finished_work_saved_statistics_are_read_and_the_work_is_kept(self, store: Path) -> None:
        assert call("run", write_job(store))[0] == 0
        other = write_job(store, k=4)
        code, _, err = call("run", other)
        assert code == 73
        assert "k was 5, now 4" in err
        assert dsel.open_selection(store.parent / "job.result").k == 5

        code, _, err = call("run", other, "--out", store.parent / "two")
        assert code == 0
        assert "the data are not read" in err
        assert dsel.open_selection(store.parent / "two").passes == 1  # the final check alone

        status = (store.parent / "job.result" / "status.json").read_bytes()
        run_job(read_job(write_job(store)))  # nothing to do
        make_store(store, X + 1, Y, chunks=(100, 24))
        code, _, err = call("run", write_job(store))
        assert code == 73
        assert "other data" in err
        assert (store.parent / "job.result" / "status.json").read_bytes() == status
        assert "finished" in call("status", store.parent / "job.result")[1].splitlines()[0]

    @pytest.mark.parametrize("interrupted", [False, True])
    @pytest.mark.usefixtures("no_workers")
    def test_the_data_are_opened_and_the_request_is_validated_and_planned_once(
        self, store: Path, monkeypatch: pytest.MonkeyPatch, interrupted: bool
    ) -> None:
        job = write_job(store, method="forward", certify={"time": "1h"})
        if interrupted:  # by a signal, when the selection is saved and its proof begins
            with monkeypatch.context() as patch:
                patch.setattr(Proof, "run", Mock(side_effect=Interrupted("Stopped.", "Start it again.")))
                assert call("run", job)[0] == 75
        steps = {
            name: Mock(wraps=getattr(module, name))
            for module, name in ((reader, "_open_store"), (runner, "validate"), (pipeline, "make_plan"))
        }
        monkeypatch.setattr(reader, "_open_store", steps["_open_store"])
        for module in (runner, pipeline, certify):
            monkeypatch.setattr(module, "validate", steps["validate"])
        monkeypatch.setattr(pipeline, "make_plan", steps["make_plan"])
        assert call("run", job)[0] == 0
        assert {name: step.call_count for name, step in steps.items()} == dict.fromkeys(steps, 1)
        assert call("run", job)[0] == 0
        assert {name: step.call_count for name, step in steps.items()} == dict.fromkeys(steps, 1) | {"_open_store": 2}


def test_the_log_begins_with_a_header_and_has_no_line_of_dask_and_no_traceback(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    monkeypatch.setenv("SLURM_RESTART_COUNT", "2")
    (left := store.parent / "job.result" / ".checkpoint.json-0123abcd").parent.mkdir()
    left.touch()
    code, _, err = call(
        "run", write_job(store, method="pposs", options={"iterations": 320}, criterion="statistics:fsum")
    )
    log = left.with_name("run.log").read_text().splitlines()
    assert code == 0, err
    assert re.search(r"dsel \S+, run \S+, process \d+ on \S+, Slurm job 4711 \(restart 2\); python 3", log[0])
    assert "removed what a killed run left: .checkpoint.json-0123abcd" in log[1]
    assert not left.exists()
    assert not [line for line in [*log, *err.splitlines()] if "distributed." in line or "Traceback" in line]


@pytest.mark.usefixtures("no_workers")
def test_the_log_of_a_job_that_chooses_its_size_is_complete(store: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, _, err = call("run", write_job(store, method="forward", k="auto"))
    log = (store.parent / "job.result" / "run.log").read_text()
    assert code == 0, err
    assert "job: forward, k = auto, store" in log
    assert "Logging error" not in log + err + capfd.readouterr().err


@pytest.mark.parametrize(
    ("keys", "code", "message"),
    [
        ({"method": "posss"}, 64, "Did you mean 'poss'"),
        ({"kk": 3}, 64, "unknown key 'kk'"),
        ({"k": 0}, 64, "'k' is 0"),
        ({"k": 25}, 64, "k is 25"),
        ({"preprocess": "unity"}, 64, "Did you mean 'unit'"),
        ({"cluster": {"local": {"worker": 2}}}, 64, "Did you mean 'workers'"),
        ({"cluster": {"local": {"memory": "lots"}}}, 64, "'cluster.local.memory' is 'lots'"),
        ({"options": {"iteration": 5}}, 64, "Did you mean 'iterations'"),
        ({"store": "nowhere.zarr"}, 66, "nowhere.zarr"),
        ({"out": "/proc/nothing"}, 73, "cannot be written"),
        ({"cluster": {"local": {"memory": "70MB"}}}, 71, "limited to 66.76 MiB"),
        ({"out": "data.zarr/out"}, 73, "lies inside the store"),
    ],
)
def test_exit_codes_and_messages_before_any_worker_starts(
    store: Path, keys: dict[str, Any], code: int, message: str
) -> None:
    found, out, err = call("run", write_job(store, **keys))
    assert found == code, err
    assert message in err
    assert "Traceback" not in err
    assert "local workers" not in err
    assert not out


@pytest.mark.usefixtures("no_workers")
def test_nan_is_an_error_of_the_data_that_names_its_row(tmp_path: Path) -> None:
    bad = X.copy()
    bad[1234, 5] = np.nan
    store = make_store(tmp_path / "data.zarr", bad, Y, chunks=(100, 24))
    code, _, err = call("run", write_job(store))
    assert code == 65
    assert "in column 'x5', row 1234" in err
    assert "Traceback" not in err
    assert call("run", write_job(store, missing="mean"), "--out", tmp_path / "filled")[0] == 0


class TestTheFolderOfAResult:
    """Without workers: what is found there, and what may be written."""

    @pytest.fixture
    def job(self, store: Path) -> JobFile:
        (store.parent / "out").mkdir()
        return JobFile(store=store, k=3, out=store.parent / "out")

    def out(self, job: JobFile) -> Path:
        assert job.out is not None
        return job.out

    def saved(self, job: JobFile) -> Any:
        identity = identity_of(job, as_dataset(str(job.store)))
        lock = Lock(self.out(job), 0, {"run": "a run that does not hold it"}, "out")
        return Checkpoints(job, RunFolder(self.out(job)), identity, Interrupts(), Reporter(), lock).saved

    def state(self) -> dict[str, Any]:
        from dsel.objective.dense import DenseObjective
        from dsel.search.anytime import Stop
        from dsel.search.pareto.slice_work import SliceRules
        from dsel.search.pareto.sliced import SlicedSearch
        from dsel.search.runtime.schedule import Schedule

        objective = DenseObjective(np.eye(4), np.ones((4, 1)), 5.0)
        return SlicedSearch(objective, SliceRules(3, 0), Schedule(), Stop(iterations=9)).state()

    def test_a_checkpoint_counts_for_its_own_job_alone(self, job: JobFile) -> None:
        dataset, state = as_dataset(str(job.store)), self.state()
        path = self.out(job) / "checkpoint.json"
        identity = identity_of(job, dataset)
        write_json(path, {"format": 1, "identity": identity, "state": state})
        assert self.saved(job) == state
        assert self.saved(job.model_copy(update={"k": 4})) is None
        for damaged in ({}, [], state, {"format": 2, "identity": identity, "state": state},
                        {"format": 1, "identity": identity, "state": {}}):  # fmt: skip
            write_json(path, damaged)
            assert self.saved(job) is None

    @pytest.mark.parametrize("damaged", [{}, [], {"identity": 3}, {"identity": {"job": {}}, "job": {"k": 3}}])
    def test_without_a_whole_description_there_is_nothing_to_resume(self, job: JobFile, damaged: Any) -> None:
        write_json(self.out(job) / "job.json", damaged)
        with pytest.raises(MissingInputError, match="holds no job"):
            resume_job(self.out(job))

    def test_a_damaged_description_is_written_again(self, job: JobFile) -> None:
        dataset, folder = as_dataset(str(job.store)), RunFolder(self.out(job))
        folder.claim(job, identity_of(job, dataset))
        whole = (self.out(job) / "job.json").read_bytes()
        (self.out(job) / "job.json").write_bytes(whole[: len(whole) // 2])
        assert folder.finished(identity_of(job, dataset)) is None
        folder.claim(job, identity_of(job, dataset))
        assert folder.job()[1].k == job.k
        write_json(folder.checkpoint, {})
        other = job.model_copy(update={"k": 4})
        with pytest.raises(OutputError, match="k was 3, now 4"):
            folder.claim(other, identity_of(other, dataset))

    def test_a_job_that_produced_nothing_makes_way_for_another(self, job: JobFile) -> None:
        dataset, folder = as_dataset(str(job.store)), RunFolder(self.out(job))
        folder.claim(job, identity_of(job, dataset))
        folder.journal.touch()  # a run opens its journal before it reads the data
        other = job.model_copy(update={"missing": "mean"})
        folder.claim(other, identity_of(other, dataset))
        assert folder.job()[1].missing == "mean"

    @pytest.mark.parametrize("damaged", ["[]", "{}", '{"format": 1}', "{", None])
    def test_a_damaged_result_is_an_error_to_open_and_made_again_by_its_job(
        self, job: JobFile, damaged: str | None
    ) -> None:
        folder, identity = RunFolder(self.out(job)), identity_of(job, as_dataset(str(job.store)))
        folder.claim(job, identity)
        path = dsel.select(X, Y, k=3, method="forward").save(self.out(job)) / "selection.json"
        assert folder.finished(identity) is not None
        if damaged is None:
            values = json.loads(path.read_text())
            damaged = json.dumps({**values, "front": 3})
        path.write_text(damaged)
        with pytest.raises(DataError, match="is damaged"):
            dsel.open_selection(self.out(job))
        assert folder.finished(identity) is None

    @pytest.mark.parametrize("alive", [False, True])
    def test_next_to_a_result_what_a_killed_run_left_is_removed_and_what_a_live_one_uses_stays(
        self, job: JobFile, alive: bool
    ) -> None:
        """A run may be killed after its result is saved, before it has freed its lock."""
        folder, identity = RunFolder(self.out(job)), identity_of(job, as_dataset(str(job.store)))
        folder.claim(job, identity)
        dsel.select(X, Y, k=3, method="forward").save(self.out(job))
        expected = {path.name for path in self.out(job).iterdir()}
        assert finished_job(job, Reporter()) is not None
        assert {path.name for path in self.out(job).iterdir()} == expected

        process = subprocess.Popen(["sleep", "3600"])
        owner = {"run": "killed", "host": "here", "machine": machine(), "pid": process.pid}
        write_json(self.out(job) / ".lock", {**owner, "started": psutil.Process(process.pid).create_time()})
        left = {".lock", "checkpoint.json", ".selection.zarr-0123ab-p1-01234567", "passes"}
        (self.out(job) / "passes" / "pass-1").mkdir(parents=True)
        for name in left - {".lock", "passes"}:
            (self.out(job) / name).touch()
        try:
            if not alive:
                process.kill()
                process.wait()
            assert finished_job(job, Reporter()) is not None
        finally:
            process.kill()
            process.wait()
        found = {path.name for path in self.out(job).iterdir()}
        assert found - {"run.log", "status.json", ".lock-1"} == (expected | left if alive else expected)
        assert is_free(self.out(job)) is not alive

    def test_a_selection_that_cannot_be_written_leaves_nothing_behind(
        self, job: JobFile, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*_: Any) -> None:
            raise OSError(28, "No space left on device")

        selection = dsel.select(X, Y, k=3, method="forward")
        monkeypatch.setattr(os, "rename", full)
        with pytest.raises(OutputError, match="No space left"):
            selection.save(self.out(job))
        assert not list(self.out(job).iterdir())

    @pytest.mark.parametrize("name", ["run.log", "job.json"])
    def test_files_that_cannot_be_written_are_named(self, job: JobFile, name: str) -> None:
        (self.out(job) / name).mkdir()
        (self.out(job) / name / "in the way").touch()
        with pytest.raises(OutputError, match=name):
            run_job(job, Reporter())
        assert not list(self.out(job).glob(f".{name}*"))

    def test_an_unexpected_error_is_in_the_log_with_its_traceback(
        self, job: JobFile, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken(*_: Any) -> None:
            raise ZeroDivisionError("here")

        monkeypatch.setattr("dsel.jobs.runner.run_validated", broken)
        with pytest.raises(ZeroDivisionError):
            run_job(job, Reporter())
        log = (self.out(job) / "run.log").read_text()
        assert "in broken" in log
        assert "ZeroDivisionError: here" in log

    def test_a_lock_for_which_there_is_no_room_leaves_nothing(
        self, job: JobFile, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(file: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(OutputError, match="No space left"):
            run_job(job, Reporter())
        assert not list(self.out(job).iterdir())

    def test_nothing_is_written_into_the_store(self, job: JobFile) -> None:
        inside_result = {"store": self.out(job) / "selection.zarr"}
        for inside in ({"out": job.store}, {"statistics_folder": job.store / "X"}, inside_result):
            with pytest.raises(OutputError, match="store"):
                require_separate(job.model_copy(update=inside))
        require_separate(job)


class TestSignals:
    def test_except_exception_does_not_hold_them_up(self) -> None:
        before = signal.getsignal(signal.SIGINT)  # ignored, where a shell started the tests in the background

        def work() -> None:
            try:
                signal.raise_signal(signal.SIGTERM)
            except Exception:
                pytest.fail("swallowed")

        with pytest.raises(Interrupted, match="SIGTERM"), Interrupts():
            work()
        assert signal.getsignal(signal.SIGINT) is before

    def test_one_that_got_lost_is_raised_when_asked_for(self) -> None:
        def work(interrupts: Interrupts) -> None:
            with suppress(BaseException):  # as in a finaliser
                signal.raise_signal(signal.SIGINT)
            interrupts.raise_received()

        with pytest.raises(Interrupted, match="SIGINT"), Interrupts() as interrupts:
            work(interrupts)

    def test_deferred_the_second_is_obeyed_at_once(self) -> None:
        def work(interrupts: Interrupts) -> None:
            interrupts.deferred = True
            signal.raise_signal(signal.SIGTERM)
            assert interrupts.received == "SIGTERM"
            signal.raise_signal(signal.SIGTERM)
            pytest.fail("went on")

        with pytest.raises(Interrupted), Interrupts() as interrupts:
            work(interrupts)

    def test_deferred_it_does_not_wait_for_ever(self) -> None:
        """A slice may hang, such as in a call to a scheduler that does not answer."""

        def work(interrupts: Interrupts) -> None:
            interrupts.deferred = True
            signal.raise_signal(signal.SIGTERM)
            threading.Timer(0.1, on_force[-1]).start()
            time.sleep(LIMIT)
            pytest.fail("went on")

        with pytest.raises(Interrupted, match="SIGTERM"), Interrupts() as interrupts:
            work(interrupts)

    @pytest.mark.parametrize("in_a_job", [False, True])
    def test_in_a_callback_of_the_compiler_it_waits_for_the_end_of_the_callback(
        self, in_a_job: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Compiled code prints and drops an exception of a callback."""
        dropped: list[Any] = []
        monkeypatch.setattr("sys.unraisablehook", dropped.append)
        module = llvm.parse_assembly("define i32 @f() {\n  ret i32 1\n}")
        machine = llvm.Target.from_default_triple().create_target_machine()
        compiler = llvm.create_mcjit_compiler(module, machine)
        compiler.set_object_cache(notify_func=lambda *_: signal.raise_signal(signal.SIGTERM))

        def work() -> None:
            compiler.finalize_object()
            time.sleep(LIMIT)
            pytest.fail("went on")

        before = signal.signal(signal.SIGTERM, _handle)
        monkeypatch.setitem(_state, "importing", False)
        try:
            with pytest.raises(Interrupted if in_a_job else Stopped), Interrupts() if in_a_job else nullcontext():
                work()
        finally:
            signal.signal(signal.SIGTERM, before)
        assert not dropped

    @pytest.mark.parametrize("deferred", [False, True])
    def test_an_error_that_another_thread_finds_ends_the_work_as_a_signal_does(self, deferred: bool) -> None:
        def work(interrupts: Interrupts) -> None:
            interrupts.deferred = deferred
            threading.Timer(0.1, interrupts.fail, [ClusterError("The scheduler was lost.")]).start()
            wait_for(lambda: deferred and interrupts.received)
            interrupts.raise_received()
            pytest.fail("went on")

        with pytest.raises(ClusterError, match="lost"), Interrupts() as interrupts:
            work(interrupts)
        signal.raise_signal(signal.SIGUSR1)  # one that comes late does no harm


LONG = {"iterations": 1_000_000, "exchange_every": 50_000}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return dsel.select(make_store(tmp_path_factory.mktemp("same") / "data.zarr", X, Y, chunks=(100, 24)), k=5, **LONG)


class TestInterruption:
    def start(self, store: Path) -> subprocess.Popen[str]:
        """Start or continue the job, which waits at its next checkpoint for a signal."""
        checkpoint = store.parent / "job.result" / "checkpoint.json"
        before = checkpoint.read_bytes() if checkpoint.exists() else None
        job = write_job(store, options=LONG, checkpoint_seconds=0.1)
        process = start_held("run", job, start_new_session=True)
        wait_for(lambda: process.poll() is not None or (checkpoint.exists() and checkpoint.read_bytes() != before))
        return process

    def end(self, process: subprocess.Popen[str]) -> tuple[int, str]:
        """Wait for the end of a job and of its workers. Return its exit code, and what it printed."""
        _, err = process.communicate(timeout=600)
        wait_for(lambda: not _has_processes(process.pid))
        return process.returncode, err

    def assert_same(self, store: Path, undisturbed: Any) -> None:
        code, _, err = call("resume", store.parent / "job.result")
        assert code == 0, err
        found = dsel.open_selection(store.parent / "job.result")
        assert found.front == undisturbed.front  # bit for bit
        assert found.trace == undisturbed.trace
        assert found.error == undisturbed.error
        assert found.iterations == undisturbed.iterations
        assert not (store.parent / "job.result" / "checkpoint.json").exists()

    def test_control_c_leaves_a_checkpoint_and_no_process_exits_75_and_the_job_continues(
        self, store: Path, undisturbed: Any
    ) -> None:
        """The terminal sends SIGINT to the whole group, workers included. Until then, no other run may write there."""
        process = self.start(store)
        code, _, err = call("run", store.parent / "job.yaml")
        assert code == 73
        assert "Another run" in err
        os.killpg(process.pid, signal.SIGINT)
        code, err = self.end(process)
        assert code == 75, err
        assert "Traceback" not in err
        saved = json.loads((store.parent / "job.result" / "checkpoint.json").read_text())
        assert "schedule" in saved["state"]
        assert saved["state"]["iteration"] < LONG["iterations"]
        file = store.parent / "job.result" / "status.json"
        status = json.loads(file.read_text())
        assert {"statistics", "search"} == status["spent"].keys()
        spent = {stage: seconds + 1000.0 for stage, seconds in status["spent"].items()}
        write_json(file, {**status, "spent": spent})
        self.assert_same(store, undisturbed)
        seconds = dsel.open_selection(store.parent / "job.result").seconds
        assert (seconds["statistics"] >= spent["statistics"], seconds["search"] > spent["search"]) == (True, True)
        assert seconds["check"] < 1000.0

    @pytest.mark.slow
    def test_killed_it_continues_from_its_last_checkpoint(self, store: Path, undisturbed: Any) -> None:
        process = self.start(store)
        process.send_signal(signal.SIGKILL)
        code, err = self.end(process)
        assert code == -signal.SIGKILL, err
        assert "Traceback" not in err
        self.assert_same(store, undisturbed)


def _has_processes(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.usefixtures("no_workers")
def test_a_criterion_is_named_by_import_path(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(store.parent))
    (store.parent / "mine.py").write_text("def closeness(S):\n    return abs(sum(S) - 40) + len(S) / 100\n")
    job = write_job(store, criterion="mine:closeness", options={"iterations": 800})
    code, _, err = call("run", job)
    assert code == 0, err
    s = dsel.open_selection(store.parent / "job.result")
    assert sum(s.indices) == 40
    assert s.criterion == pytest.approx(len(s) / 100)
    code, _, err = call("run", write_job(store, criterion="mine:nothing"), "--out", store.parent / "other")
    assert code == 64
    assert "cannot be imported" in err


class TestTheCluster:
    def bits(self, statistics: Any) -> list[bytes]:
        return [
            np.ascontiguousarray(v).tobytes() for v in (statistics.K, statistics.B, statistics.mean_x, statistics.yy)
        ]

    def test_not_a_bit_depends_on_the_workers_and_each_chunk_is_read_once(self, store: Path) -> None:
        in_threads = gram_statistics(as_dataset(str(store)))
        for workers in (1, 2):
            with local_cluster(workers, "600MB") as client:
                client.run(count_reads)
                found = gram_statistics(as_dataset(str(store)), engine=DaskEngine(client))
                reads: dict[str, int] = {}
                for counted in client.run(reads_so_far).values():
                    for key, times in counted.items():
                        reads[key] = reads.get(key, 0) + times
                assert all(peak < limit for peak, limit in DaskEngine(client).peak_memory().values())
            assert self.bits(found) == self.bits(in_threads)
            of_x = {key: times for key, times in reads.items() if key.startswith("X/c/")}
            assert of_x == {f"X/c/{i}/0": 1 for i in range(30)}

    def test_a_worker_killed_during_the_pass_changes_nothing(self, store: Path) -> None:
        expected = gram_statistics(as_dataset(str(store)))
        killed = []
        with local_cluster(2, "600MB") as client:

            def kill_one(done: int, total: int) -> None:
                if not killed:
                    pid = next(iter(client.run(os.getpid).values()))
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)

            client.run(_slow_reads)
            found = gram_statistics(as_dataset(str(store)), engine=DaskEngine(client, kill_one))
        assert killed
        assert self.bits(found) == self.bits(expected)


def _slow_reads() -> None:
    """Make the pass last long enough for something to happen in it."""
    from dsel.data.store.array import StoredArray

    plain = StoredArray.read

    def read(self: Any, *args: Any, **kwargs: Any) -> Any:
        time.sleep(0.05)
        return plain(self, *args, **kwargs)

    StoredArray.read = read  # type: ignore[method-assign]


def test_the_demo_prints_a_result_worth_reading(tmp_path: Path) -> None:
    code, out, err = call("demo", "--out", tmp_path / "demo")
    assert code == 0, err
    assert "forward selection 0.422160" in out
    assert "POSS              0.438258" in out


class TestFilesOfTheUser:
    """A folder with other files takes a result, and no file that the job did not write is replaced."""

    @pytest.fixture
    def job(self, tmp_path: Path) -> JobFile:
        X, Y = regression(m=60)
        make_store(tmp_path / "data.zarr", X, Y)
        (tmp_path / "out").mkdir()
        return JobFile(store=tmp_path / "data.zarr", out=tmp_path / "out", k=2, method="forward")

    def test_other_files_stay(self, job: JobFile) -> None:
        (job.out / "notes.txt").write_text("mine")
        run_job(job)
        assert (job.out / "notes.txt").read_text() == "mine"
        assert len(dsel.open_selection(job.out)) == 2

    def test_a_selection_that_was_saved_from_python_is_not_replaced(self, job: JobFile) -> None:
        saved = dsel.select(job.store, k=1)
        saved.save(job.out)
        with pytest.raises(OutputError, match=r"selection\.json was not written by a job"):
            run_job(job)
        assert dsel.open_selection(job.out).indices == saved.indices

    def test_a_job_description_of_the_user_is_not_replaced(self, job: JobFile) -> None:
        (job.out / "job.json").write_text('{"store": "data.zarr", "k": 2}')
        with pytest.raises(OutputError, match=r"job\.json was not written by a job") as refused:
            run_job(job)
        assert refused.value.exit_code == 73
        assert (job.out / "job.json").read_text() == '{"store": "data.zarr", "k": 2}'
