"""PPOSS on Dask workers that die, hang, join and leave: the result is that of one process."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from contextlib import nullcontext, suppress

import numpy as np
import pytest
from distributed import Client, LocalCluster

import dsel
from dsel.engine.dask_engine import DaskEngine
from dsel.engine.dask_futures import DaskExecutor
from dsel.errors import ClusterError, CriterionError, Interrupted
from dsel.objective.objective_on_workers import save_objective
from dsel.search.anytime import Stop
from dsel.search.ask_tell import ExecutorOptions, SerialExecutor
from dsel.search.journal import Journal
from dsel.search.pareto.criterion import CriterionSearch
from dsel.search.pareto.evaluations import EvaluateSubsets
from dsel.search.pareto.slice_work import RunSlices, SliceRules
from dsel.search.pareto.sliced import SlicedSearch
from dsel.search.runtime.dispatcher import Dispatcher
from dsel.search.runtime.schedule import Schedule
from tests.engine.executors.cases import (
    COLUMNS,
    LoggedCriterion,
    T,
    hangs_once,
    raises,
    run,
    undisturbed,
    wait_for_second_worker,
)
from tests.search.cases import random_data, regression
from tests.search.pareto.by_hand import K, all_of, search_of
from tests.search.runtime.replay import replayed


def in_memory(client) -> tuple[int, int, int]:
    """Return how many searches, objectives and data sets the workers hold."""

    def here() -> tuple[int, int, int]:
        from dsel.data import criterion_data as columns
        from dsel.objective import objective_on_workers as stored
        from dsel.search.runtime import kept_on_worker

        return len(kept_on_worker._kept), len(stored._loaded), len(columns._kept)

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


class TestWorkers:
    def test_a_criterion_that_cannot_be_sent_is_refused(self, client) -> None:
        lock = threading.Lock()
        with pytest.raises(CriterionError, match="cannot be sent to a worker"):
            run(DaskEngine(client).executor, lambda S: lock.locked())

    def test_the_result_is_that_of_one_process_and_nothing_is_evaluated_twice(self, client, tmp_path) -> None:
        criterion = LoggedCriterion(tmp_path / "calls")
        search, stats = run(DaskEngine(client).executor, criterion)
        assert all_of(search) == all_of(undisturbed())
        assert len(criterion.calls()) == len(set(criterion.calls())) == undisturbed().evaluations
        assert stats.evaluations == undisturbed().evaluations

    def test_the_asynchronous_search_evaluates_nothing_twice_and_its_journal_replays(self, client, tmp_path) -> None:
        criterion, journal = LoggedCriterion(tmp_path / "calls", 0.002), Journal(tmp_path / "journal")
        journal.write("started", solutions=[])
        search, _ = run(DaskEngine(client).executor, criterion, search_of(seed=4, order="arrival", T=T), journal)
        assert len(criterion.calls()) == len(set(criterion.calls())) == search.evaluations
        assert replayed(journal.path, K).points == search.archived

    def test_slices_on_an_objective_that_workers_read_from_a_file(self, client, tmp_path) -> None:
        X, Y = random_data(7, m=80, n=25)
        objective = regression(X, Y)
        rules, stop = SliceRules(4, 2), Stop(iterations=300_000)
        search = SlicedSearch(objective, rules, Schedule(length=30_000, order="arrival"), stop)
        journal = Journal(tmp_path / "journal")
        journal.write("started", solutions=[])
        work = RunSlices(save_objective(objective, tmp_path), rules)
        Dispatcher(search, DaskExecutor(client, work, ExecutorOptions()), stop, journal).run()
        assert search.evaluations == 300_000
        best = min(z.value for z in search.archived if z.size <= 4)
        assert best == pytest.approx(min(objective.value(z.members) for z in search.archived if z.size <= 4))
        assert replayed(journal.path, 4).points[1:] == search.archive.points[1:]

    @pytest.mark.parametrize("interrupted", [False, True])
    def test_workers_release_all_memory_at_the_end(self, client, tmp_path, interrupted) -> None:
        objective, memory = regression(*random_data(7, m=80, n=25)), []
        rules, stop = SliceRules(4, 2), Stop(iterations=10**9 if interrupted else 200_000)
        work = RunSlices(save_objective(objective, tmp_path), rules)
        search = SlicedSearch(objective, rules, Schedule(length=20_000, order="arrival"), stop)
        executor = DaskExecutor(client, work, ExecutorOptions())

        def look(search) -> None:
            memory.append(in_memory(client))
            if interrupted and memory[-1] > (0, 0, 0):
                raise Interrupted("Stopped.")

        with pytest.raises(Interrupted) if interrupted else nullcontext():
            Dispatcher(search, executor, stop).run(look)
        assert max(memory) > (0, 0, 0)
        wait_until_idle(client)  # a cancelled slice still runs to its end
        assert in_memory(client) == (0, 0, 0)

    def test_workers_release_the_data_of_a_criterion(self, client, tmp_path) -> None:
        from tests.stores import make_store

        X, Y = random_data(1, m=60, n=7)
        path = make_store(tmp_path / "data.zarr", X, Y, chunks=(25, 4))

        def criterion(S, data) -> float:
            return float(abs(data.Y[:, 0] - data.columns(S).sum(axis=1)).mean())

        found = dsel.select(str(path), k=2, method="pposs", criterion=criterion, iterations=120, processors=24)
        assert found.counts["tasks"] > 0
        assert in_memory(client) == (0, 0, 0)

    def test_a_criterion_that_raises_is_named_with_its_traceback(self, client, tmp_path) -> None:
        with pytest.raises(CriterionError, match=r"columns \[\d+, \d+\]:\n(.*\n)*ZeroDivisionError: no folds left"):
            run(DaskEngine(client).executor, LoggedCriterion(tmp_path / "calls", bad=raises))

    def test_a_worker_that_hangs_is_restarted_and_another_does_its_task(self, client, tmp_path) -> None:
        search, stats = run(
            DaskEngine(client).executor, LoggedCriterion(tmp_path / "calls", bad=hangs_once), evaluation_limit=0.5
        )
        assert all_of(search) == all_of(undisturbed())
        assert stats.lost_tasks >= 1  # more, if a slow machine takes half a second for another

    def test_workers_killed_at_random_change_nothing(self, client, tmp_path) -> None:
        """A Poisson process of SIGKILLs. Only the evaluations of killed workers are repeated."""
        criterion, killed, done = LoggedCriterion(tmp_path / "calls", 0.01), [], threading.Event()
        rng = random.Random(5)

        def kill() -> None:
            while not done.wait(rng.expovariate(3.0)):
                with suppress(Exception):
                    pids = sorted(client.run(os.getpid, on_error="ignore").values())
                    if len(pids) > 1:  # without any worker it would only take longer
                        os.kill(pids[rng.randrange(len(pids))], signal.SIGKILL)
                        killed.append(time.monotonic())

        killer = threading.Thread(target=kill)
        killer.start()
        try:
            search, _ = run(DaskEngine(client).executor, criterion)
        finally:
            done.set()
            killer.join()
        assert all_of(search) == all_of(undisturbed())
        assert killed
        repeated = len(criterion.calls()) - len(set(criterion.calls()))
        assert repeated <= len(killed) * 2 * 16  # two tasks of at most a round for each worker that died

    @pytest.mark.parametrize("kind", ["slices", "evaluations"])
    def test_a_worker_killed_under_its_task_changes_nothing(self, client, tmp_path, kind) -> None:
        stop = Stop(iterations=2_000_000 if kind == "slices" else 300)
        criterion = LoggedCriterion(tmp_path / "calls", 0.01)
        work = EvaluateSubsets(criterion, None, COLUMNS)
        if kind == "slices":
            objective, rules = regression(*random_data(7, m=80, n=25)), SliceRules(4, 2, exchange_every=1000)
            work = RunSlices(save_objective(objective, tmp_path), rules)

        def begun() -> SlicedSearch | CriterionSearch:
            if kind == "slices":
                return SlicedSearch(objective, rules, Schedule(4, 100_000), stop)
            return search_of(in_flight=8, stop=stop, seed=3)

        calm, search, killed = begun(), begun(), []
        Dispatcher(calm, SerialExecutor(work), stop).run()
        pids = list(client.run(os.getpid).values())

        def kill(search) -> None:
            if not killed and 3 * search.iteration > stop.iterations:
                killed.append(os.kill(pids[0], signal.SIGKILL))

        Dispatcher(search, DaskExecutor(client, work, ExecutorOptions()), stop).run(kill)
        assert killed
        assert (search.archived, search.trace, search.counts()) == (calm.archived, calm.trace, calm.counts())
        client.wait_for_workers(2)

    def test_workers_may_join_and_leave(self, client, tmp_path) -> None:
        seen = set()

        def scale(search) -> None:
            third = search.iteration * 3 // T
            if third not in seen:
                seen.add(third)
                client.cluster.scale([2, 3, 1, 2][third])

        search, _ = run(DaskEngine(client).executor, LoggedCriterion(tmp_path / "calls", 0.005), on_slice=scale)
        assert all_of(search) == all_of(undisturbed())
        assert seen >= {0, 1, 2}


def test_an_adaptive_cluster_grows_and_shrinks_under_a_run(tmp_path) -> None:
    """Workers join because tasks wait, and leave while the client is busy."""
    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        cluster.adapt(minimum=1, maximum=2, interval="50ms", target_duration="10ms", wait_count=1)

        def workers() -> int:
            return len(client.scheduler_info(n_workers=-1)["workers"])

        for search in (search_of(processors=16, seed=3, T=T), search_of(seed=4, order="arrival", T=T)):
            criterion, seen = LoggedCriterion(tmp_path / search.schedule.order, bad=wait_for_second_worker), [1]

            def look(search, criterion=criterion, seen=seen) -> None:
                if seen == [1] and workers() == 2:
                    criterion.path.with_suffix(".second").touch()
                    seen.append(2)
                elif seen == [1, 2] and search.iteration > T / 2:
                    while workers() == 2:
                        time.sleep(0.02)
                    seen.append(1)

            run(DaskEngine(client).executor, criterion, search, on_slice=look)
            assert seen == [1, 2, 1]
            assert len(set(criterion.calls())) == search.evaluations
            if search.schedule.processors:
                assert all_of(search) == all_of(undisturbed())


def test_a_lost_scheduler_is_an_error_and_the_search_keeps_its_values(tmp_path) -> None:
    cluster = LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None)
    client = Client(cluster)
    search = search_of(processors=16, seed=3, T=T)

    def lose(search: CriterionSearch) -> None:
        if search.evaluations > 20:
            cluster.close()
            client.close()

    with pytest.raises(ClusterError, match="The scheduler was lost"):
        run(DaskEngine(client).executor, LoggedCriterion(tmp_path / "calls", 0.005), search, on_slice=lose)
    assert search.evaluations > 20


class TestSelect:
    """From Python, with the data as the criterion's second argument."""

    X, Y = random_data(1, m=60, n=7)

    def test_the_cross_validated_score_of_an_estimator_is_a_criterion(self, client) -> None:
        from sklearn.linear_model import LinearRegression
        from sklearn.model_selection import cross_val_score

        criterion = dsel.CrossValidated(LinearRegression(), folds=3)
        here = dsel.select(self.X, self.Y, k=2, method="poss", criterion=criterion, iterations=60)
        there = dsel.select(self.X, self.Y, k=2, method="pposs", criterion=criterion, iterations=120, processors=24)
        for found in (here, there):
            scores = cross_val_score(LinearRegression(), self.X[:, sorted(found.indices)], self.Y[:, 0], cv=3)
            assert found.criterion == pytest.approx(-scores.mean())
        assert set(there.indices) == set(here.indices)
        assert there.counts["tasks"] > 0

    def test_data_are_read_whole_or_by_columns_from_memory_or_a_store(self, client, tmp_path, monkeypatch) -> None:
        from dsel.data import criterion_data as module
        from dsel.data.as_dataset import as_dataset
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

    def test_pposs_with_one_processor_is_poss_and_pposs_asy_is_close(self, client) -> None:
        here = dsel.select(self.X, self.Y, k=3, method="pposs", processors=1, seed=4)
        poss = dsel.select(self.X, self.Y, k=3, method="poss", seed=4)
        assert (here.indices, here.front, here.trace) == (poss.indices, poss.front, poss.trace)
        free = dsel.select(self.X, self.Y, k=3, method="pposs-asy", seed=4)
        assert free.iterations == poss.iterations
        assert free.error == pytest.approx(poss.error, rel=0.05)
