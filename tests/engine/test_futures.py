"""PPOSS on processes and on Dask workers that die, hang, come and go: in rounds the answer is the undisturbed one."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from distributed import Client, LocalCluster

import dsel
from dsel.engine.dask import DaskEngine
from dsel.engine.executors.dask_futures import DaskExecutor
from dsel.engine.executors.local_processes import LocalProcessExecutor
from dsel.errors import ClusterError, CriterionError
from dsel.objective.objective_file import save_objective
from dsel.search.anytime import Stop
from dsel.search.parallel.asynchronous import AsyncPposs, SlicedPposs
from dsel.search.parallel.dispatcher import Dispatcher
from dsel.search.parallel.executor import ExecutorOptions, SerialExecutor
from dsel.search.parallel.journal import Journal
from dsel.search.parallel.synchronous import Pposs
from dsel.search.parallel.worker_tasks import EvaluateSubsets, RunSlices
from tests.search.cases import random_data, regression
from tests.search.parallel.replay import replayed
from tests.search.parallel.test_synchronous import N_COLUMNS, K, all_of, cover

COLUMNS = tuple(range(N_COLUMNS))
T = 640


class Noted:
    """`cover`, each call a line in a file that all processes write to; slow, or as bad as told."""

    def __init__(self, path: Path, seconds: float = 0.0, bad=None) -> None:
        self.path, self.seconds, self.bad = path, seconds, bad

    def __call__(self, S) -> float:
        with self.path.open("a") as file:
            file.write(f"{S}\n")
        time.sleep(self.seconds)
        if self.bad is not None:
            self.bad(S, self.path)
        return cover(S)

    def calls(self) -> list[str]:
        return self.path.read_text().splitlines() if self.path.exists() else []


def hangs_once(S, path: Path) -> None:
    """The first time that some subset of two columns is asked for."""
    if len(S) == 2 and not path.with_suffix(".hung").exists():
        path.with_suffix(".hung").write_text(str(S))
        time.sleep(1000)


def dies_and_hangs(S, path: Path) -> None:
    """Each once."""
    if len(S) == 1 and not path.with_suffix(".died").exists():
        path.with_suffix(".died").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    hangs_once(S, path)


def raises(S, path: Path) -> None:
    if len(S) == 2:
        raise ZeroDivisionError("no folds left")


def wait_for_company(S, path: Path) -> None:
    """All but the first evaluations, until somebody has seen a second worker."""
    while len(S) > 1 and not path.with_suffix(".company").exists():
        time.sleep(0.01)


def kept(client) -> tuple[int, int, int]:
    """Slice runners, objectives and data that the workers hold, all together."""

    def here() -> tuple[int, int, int]:
        from dsel.data import criterion_data as columns
        from dsel.objective import objective_file as stored
        from dsel.search.parallel import worker_tasks as work

        return sum(map(len, work._runners.values())), len(stored._loaded), len(columns._kept)

    return tuple(map(sum, zip(*client.run(here).values(), strict=True)))


def wait_until_idle(client) -> None:
    def running(dask_worker) -> int:
        return len(dask_worker.state.executing) + len(dask_worker.state.long_running)

    while any(client.run(running).values()):
        time.sleep(0.05)


@pytest.fixture(scope="module")
def client():
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        yield client


@pytest.fixture(scope="module")
def calm() -> Pposs:
    search = Pposs(N_COLUMNS, K, processors=16, seed=3)
    Dispatcher(search, SerialExecutor(EvaluateSubsets(cover, None, COLUMNS)), Stop(iterations=T)).run()
    return search


def run(executor, criterion, search=None, journal=None, on_slice=None, **carriage):
    search = search or Pposs(N_COLUMNS, K, processors=16, seed=3)
    work = EvaluateSubsets(criterion, None, COLUMNS)
    dispatcher = Dispatcher(search, executor(work, ExecutorOptions(**carriage)), Stop(iterations=T), journal)
    dispatcher.run(on_slice)
    return search, dispatcher.stats


UNGUARDED = """
import numpy as np, dsel
X = np.random.default_rng(0).normal(size=(50, 8))
print(dsel.select(X, X[:, 3], k=2, method="pposs", criterion=lambda S: len(S), processes=2, iterations=300).indices)
"""


class TestProcesses:
    def test_they_find_what_one_process_finds_and_ask_nothing_twice(self, calm, tmp_path) -> None:
        criterion = Noted(tmp_path / "calls")
        search, _ = run(LocalProcessExecutor, criterion, processes=2)
        assert all_of(search) == all_of(calm)
        assert len(criterion.calls()) == len(set(criterion.calls())) == calm.evaluations

    def test_what_hangs_is_killed_and_what_dies_is_replaced(self, calm, tmp_path) -> None:
        criterion = Noted(tmp_path / "calls", bad=dies_and_hangs)
        search, stats = run(LocalProcessExecutor, criterion, processes=1, evaluation_limit=0.3)
        assert all_of(search) == all_of(calm)
        assert stats.lost_tasks == 1  # the scheduler itself gives the task of a dead process to the next one
        assert criterion.path.with_suffix(".died").exists()

    def test_a_script_without_a_main_guard_is_told_so(self, tmp_path) -> None:
        (tmp_path / "script.py").write_text(UNGUARDED)
        found = subprocess.run(
            [sys.executable, tmp_path / "script.py"], cwd=Path(__file__).parents[2], capture_output=True, text=True,
            timeout=120, env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        )  # fmt: skip
        assert found.returncode == 1
        assert 'needs `if __name__ == "__main__":`' in found.stderr.splitlines()[-1]

    def test_a_criterion_that_cannot_be_sent_is_refused(self) -> None:
        lock = threading.Lock()
        with pytest.raises(CriterionError, match="cannot be sent to a worker: TypeError"):
            run(LocalProcessExecutor, lambda S: lock.locked(), processes=1)


class TestWorkers:
    def test_a_criterion_that_cannot_be_sent_is_refused(self, client) -> None:
        lock = threading.Lock()
        with pytest.raises(CriterionError, match="cannot be sent to a worker"):
            run(DaskEngine(client).executor, lambda S: lock.locked())

    def test_they_find_what_one_process_finds_and_ask_nothing_twice(self, client, calm, tmp_path) -> None:
        criterion = Noted(tmp_path / "calls")
        search, stats = run(DaskEngine(client).executor, criterion)
        assert all_of(search) == all_of(calm)
        assert len(criterion.calls()) == len(set(criterion.calls())) == calm.evaluations
        assert stats.evaluations == calm.evaluations

    def test_without_waiting_nothing_is_asked_twice_and_the_journal_tells_the_archive(self, client, tmp_path) -> None:
        criterion, journal = Noted(tmp_path / "calls", 0.002), Journal(tmp_path / "journal")
        journal.write("started", solutions=[])
        search, _ = run(DaskEngine(client).executor, criterion, AsyncPposs(N_COLUMNS, K, seed=4), journal)
        assert len(criterion.calls()) == len(set(criterion.calls())) == search.evaluations
        assert replayed(journal.path, K).points == search.archived

    def test_slices_come_from_an_objective_that_the_workers_open(self, client, tmp_path) -> None:
        X, Y = random_data(7, m=80, n=25)
        objective = regression(X, Y)
        search, journal = SlicedPposs(objective, 4, seed=2), Journal(tmp_path / "journal")
        journal.write("started", solutions=[])
        work = RunSlices(save_objective(objective, tmp_path), 4, 2)
        Dispatcher(search, DaskExecutor(client, work, ExecutorOptions()), Stop(iterations=300_000), journal).run()
        assert search.evaluations == 300_000
        best = min(z.value for z in search.archived if z.size <= 4)
        assert best == pytest.approx(min(objective.value(z.members) for z in search.archived if z.size <= 4))
        assert replayed(journal.path, 4).points[1:] == search.archive.points[1:]

    @pytest.mark.parametrize("rules", [{"iterations": 200_000}, {"iterations": 10**9, "seconds": 1.0}], ids=str)
    def test_once_it_is_over_nothing_of_it_stays_in_a_worker_s_memory(self, client, tmp_path, rules) -> None:
        objective, held = regression(*random_data(7, m=80, n=25)), []
        work = RunSlices(save_objective(objective, tmp_path), 4, 2)
        search = SlicedPposs(objective, 4, seed=2)
        executor = DaskExecutor(client, work, ExecutorOptions())
        Dispatcher(search, executor, Stop(**rules)).run(lambda _: held.append(kept(client)))
        assert max(held) > (0, 0, 0)
        wait_until_idle(client)  # a slice that nobody waits for any more is made to its end
        assert kept(client) == (0, 0, 0)

    def test_neither_do_the_data_of_a_criterion(self, client, tmp_path) -> None:
        from tests.stores import make_store

        X, Y = random_data(1, m=60, n=7)
        path = make_store(tmp_path / "data.zarr", X, Y, chunks=(25, 4))

        def criterion(S, data) -> float:
            return float(abs(data.Y[:, 0] - data.columns(S).sum(axis=1)).mean())

        found = dsel.select(str(path), k=2, method="pposs", criterion=criterion, iterations=120, processors=24)
        assert found.counts["tasks"] > 0
        assert kept(client) == (0, 0, 0)

    def test_a_criterion_that_raises_is_named_with_its_traceback(self, client, tmp_path) -> None:
        with pytest.raises(CriterionError, match=r"columns \[\d+, \d+\]:\n(.*\n)*ZeroDivisionError: no folds left"):
            run(DaskEngine(client).executor, Noted(tmp_path / "calls", bad=raises))

    def test_one_that_hangs_is_started_anew_and_its_work_done_by_another(self, client, calm, tmp_path) -> None:
        search, stats = run(
            DaskEngine(client).executor, Noted(tmp_path / "calls", bad=hangs_once), evaluation_limit=0.5
        )
        assert all_of(search) == all_of(calm)
        assert stats.lost_tasks == 1

    def test_workers_killed_at_random_change_nothing(self, client, calm, tmp_path) -> None:
        """A Poisson process of SIGKILLs; what was being evaluated is evaluated again, and nothing else."""
        criterion, killed, done = Noted(tmp_path / "calls", 0.01), [], threading.Event()
        rng = random.Random(5)

        def kill() -> None:
            while not done.wait(rng.expovariate(3.0)):
                with suppress(Exception):
                    pids = sorted(client.run(os.getpid, on_error="ignore").values())
                    if len(pids) > 1:  # the last one would only make it long
                        os.kill(pids[rng.randrange(len(pids))], signal.SIGKILL)
                        killed.append(time.monotonic())

        killer = threading.Thread(target=kill)
        killer.start()
        try:
            search, _ = run(DaskEngine(client).executor, criterion)
        finally:
            done.set()
            killer.join()
        assert all_of(search) == all_of(calm)
        assert killed
        again = len(criterion.calls()) - len(set(criterion.calls()))
        assert again <= len(killed) * 2 * 16  # two tasks of at most a round for each worker that died

    def test_workers_may_come_and_go(self, client, calm, tmp_path) -> None:
        seen = set()

        def scale(search) -> None:
            third = search.iteration * 3 // T
            if third not in seen:
                seen.add(third)
                client.cluster.scale([2, 3, 1, 2][third])

        search, _ = run(DaskEngine(client).executor, Noted(tmp_path / "calls", 0.005), on_slice=scale)
        assert all_of(search) == all_of(calm)
        assert seen >= {0, 1, 2}


def test_an_adaptive_cluster_grows_and_shrinks_under_a_run(calm, tmp_path) -> None:
    """Workers come because of what waits, and go while the client is held up."""
    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        cluster.adapt(minimum=1, maximum=2, interval="50ms", target_duration="10ms", wait_count=1)

        def workers() -> int:
            return len(client.scheduler_info(n_workers=-1)["workers"])

        for search in (Pposs(N_COLUMNS, K, processors=16, seed=3), AsyncPposs(N_COLUMNS, K, seed=4)):
            criterion, seen = Noted(tmp_path / type(search).__name__, bad=wait_for_company), [1]

            def look(search, criterion=criterion, seen=seen) -> None:
                if seen == [1] and workers() == 2:
                    criterion.path.with_suffix(".company").touch()
                    seen.append(2)
                elif seen == [1, 2] and search.iteration > T / 2:
                    while workers() == 2:
                        time.sleep(0.02)
                    seen.append(1)

            run(DaskEngine(client).executor, criterion, search, on_slice=look)
            assert seen == [1, 2, 1]
            assert len(set(criterion.calls())) == search.evaluations
            if isinstance(search, Pposs):
                assert all_of(search) == all_of(calm)


def test_without_a_scheduler_it_ends_with_an_error_and_keeps_what_came(tmp_path) -> None:
    cluster = LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None)
    client = Client(cluster)
    search = Pposs(N_COLUMNS, K, processors=16, seed=3)

    def lose(search: Pposs) -> None:
        if search.evaluations > 20:
            cluster.close()
            client.close()

    with pytest.raises(ClusterError, match="The scheduler was lost"):
        run(DaskEngine(client).executor, Noted(tmp_path / "calls", 0.005), search, on_slice=lose)
    assert search.evaluations > 20


class TestSelect:
    """From Python, with the data as the criterion's second argument."""

    X, Y = random_data(1, m=60, n=7)

    def test_the_cross_validated_score_of_an_estimator_is_a_criterion(self, client) -> None:
        from sklearn.linear_model import LinearRegression
        from sklearn.model_selection import cross_val_score

        criterion = dsel.CrossValidated(LinearRegression(), folds=3)
        here = dsel.select(self.X, self.Y, k=2, method="poss", criterion=criterion, iterations=120)
        there = dsel.select(self.X, self.Y, k=2, method="pposs", criterion=criterion, iterations=240, processors=24)
        for found in (here, there):
            scores = cross_val_score(LinearRegression(), self.X[:, sorted(found.indices)], self.Y[:, 0], cv=3)
            assert found.criterion == pytest.approx(-scores.mean())
        assert set(there.indices) == set(here.indices)
        assert there.counts["tasks"] > 0

    def test_the_data_come_whole_or_by_columns_from_memory_or_a_store(self, client, tmp_path, monkeypatch) -> None:
        from dsel.data import criterion_data as module
        from dsel.data.dataset import as_dataset
        from tests.stores import make_store

        path = make_store(tmp_path / "data.zarr", self.X, self.Y, chunks=(25, 4))
        for dataset in (as_dataset(self.X, self.Y), as_dataset(str(path))):
            for limit in (module.KEEP_BYTES, 0):
                monkeypatch.setattr(module, "KEEP_BYTES", limit)
                data = module.ColumnData(dataset)
                np.testing.assert_array_equal(data.columns((6, 2, 5)), self.X[:, [6, 2, 5]])
                np.testing.assert_array_equal(data.Y, self.Y)
            assert client.submit(lambda d: float(d.columns([3]).sum()), data).result() == pytest.approx(
                self.X[:, 3].sum()
            )

    def test_the_paper_s_method_is_the_same_with_and_without_workers(self, client) -> None:
        here = dsel.select(self.X, self.Y, k=3, method="pposs", processors=1, seed=4)
        poss = dsel.select(self.X, self.Y, k=3, method="poss", seed=4)
        assert (here.indices, here.front, here.trace) == (poss.indices, poss.front, poss.trace)
        free = dsel.select(self.X, self.Y, k=3, method="pposs-asy", seed=4)
        assert free.iterations == poss.iterations
        assert free.error == pytest.approx(poss.error, rel=0.05)
