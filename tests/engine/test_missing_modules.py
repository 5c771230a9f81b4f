"""A cluster that lacks a module: an error names the module and the place at once, for every kind of task."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from dask import delayed
from distributed import Client, LocalCluster

from dsel.config.request import SelectionRequest
from dsel.data.as_dataset import as_dataset
from dsel.engine.dask_engine import DaskEngine
from dsel.errors import CriterionError, DselError
from dsel.search.anytime import Stop
from dsel.search.ask_tell import ExecutorOptions, SerialExecutor
from dsel.search.exact.branch_and_bound.subproblem_tree import BranchAndBound
from dsel.search.exact.trees_on_workers import on_workers
from dsel.search.pareto.slice_work import RunSlices
from dsel.search.pareto.sliced import SlicedSearch
from dsel.search.runtime.dispatcher import Dispatcher
from dsel.search.runtime.schedule import Schedule
from dsel.selection.context import RunContext
from dsel.selection.pipeline import run_selection
from tests.engine.executors.cases import run
from tests.remote_cluster import remote_cluster
from tests.search.cases import random_data, regression
from tests.search.exact.cases import hard_case
from tests.search.pareto.by_hand import all_of

#: The module that only this process has.
MODULE = """
from dataclasses import dataclass
from dsel.search.pareto.slice_work import SliceRules
import time

def score(S):
    time.sleep(0.005)
    return 10.0 - len(S)

class Rules(SliceRules): ...

@dataclass
class Work:
    work: object
    def explorer(self): return self.work.explorer()
    def explore(self, *arguments): return self.work.explore(*arguments)
"""
X, Y = random_data(1, m=60, n=9)
#: An error has to come within this many seconds. Without it there is none at all.
LIMIT = 30.0


@pytest.fixture(scope="module")
def only_here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    folder = tmp_path_factory.mktemp("modules")
    (folder / "only_here.py").write_text(MODULE)
    sys.path.append(str(folder))
    module = import_module("only_here")
    sys.path.remove(str(folder))
    yield module
    del sys.modules["only_here"]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The address of a scheduler with one worker in another process, which lacks the module."""
    with remote_cluster() as (address, _):
        yield address


@pytest.fixture
def client(address: str) -> Iterator[Client]:
    with Client(address) as client:  # type: ignore[no-untyped-call]
        yield client


def evaluations(engine: DaskEngine, module: Any) -> None:
    run(engine.executor, module.score)


def slices(engine: DaskEngine, module: Any) -> None:
    objective = regression(X, Y)
    rules, stop = module.Rules(4, 2), Stop(iterations=20_000)
    search = SlicedSearch(objective, rules, Schedule(4, 5000), stop)
    Dispatcher(search, engine.executor(RunSlices(objective, rules), ExecutorOptions()), stop).run()


def proof(engine: DaskEngine, module: Any) -> None:
    tree = BranchAndBound(hard_case(3, n=40), 7)
    work = module.Work(tree.work())
    tree.work = lambda: work  # type: ignore[method-assign]
    on_workers(engine.executor)(tree, Stop(iterations=10**6))


def one_pass(engine: DaskEngine, module: Any) -> None:
    engine.run(delayed(module.score)((1, 2)))


@pytest.mark.parametrize("task", [evaluations, slices, proof, one_pass])
def test_an_error_names_the_module_and_the_worker(
    task: Callable[[DaskEngine, Any], None], client: Client, only_here: ModuleType
) -> None:
    started = time.monotonic()
    with pytest.raises(CriterionError, match=r"Worker tcp://\S+ cannot import the module 'only_here'.*PYTHONPATH"):
        task(DaskEngine(client), only_here)
    assert time.monotonic() - started < LIMIT


@pytest.mark.parametrize("method", ["poss", "pposs", "pposs-asy"])
def test_a_selection_says_so_before_its_first_pass(method: str, client: Client, only_here: Any) -> None:
    stages: list[str] = []
    request = SelectionRequest(k=3, method=method, criterion=only_here.score)
    with pytest.raises(CriterionError, match=r"Worker tcp://\S+ cannot import the module 'only_here'"):
        run_selection(as_dataset(X, Y), request, RunContext(DaskEngine(client), on_stage=stages.append))
    assert stages == []


@pytest.mark.parametrize("task", [evaluations, proof, one_pass])
def test_without_dsel_on_the_scheduler_an_error_says_so(
    task: Callable[[DaskEngine, Any], None], only_here: Any
) -> None:
    with remote_cluster() as (address, _), Client(address) as client:  # type: ignore[no-untyped-call]
        client.run_on_scheduler(exec, "import sys; sys.modules['dsel'] = None")
        started = time.monotonic()
        with pytest.raises(DselError, match=r"(The scheduler|Worker \S+) cannot import the module 'dsel"):
            task(DaskEngine(client), only_here)
        assert time.monotonic() - started < LIMIT


def test_a_scheduler_needs_no_module_of_a_criterion(only_here: Any) -> None:
    with remote_cluster(processes=True) as (address, _), Client(address) as client:  # type: ignore[no-untyped-call]
        client.run(exec, f"import sys; sys.path.append({str(Path(only_here.__file__).parent)!r})")
        search, _ = run(DaskEngine(client).executor, only_here.score)
        assert all_of(search) == all_of(run(SerialExecutor, only_here.score)[0])
        with pytest.raises(CriterionError, match="The scheduler cannot import the module 'only_here'"):
            one_pass(DaskEngine(client), only_here)


def test_a_worker_that_joins_later_is_named(only_here: Any) -> None:
    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:  # type: ignore[no-untyped-call]
        client.run(exec, f"import sys; sys.path.append({str(Path(only_here.__file__).parent)!r})")
        first = {*client.scheduler_info()["workers"]}

        def join(search: Any) -> None:
            if search.evaluations and first == {*client.scheduler_info()["workers"]}:
                cluster.scale(2)  # type: ignore[no-untyped-call]
                client.wait_for_workers(2)
                client.retire_workers([*first])  # it would do all that is left

        with pytest.raises(CriterionError, match=r"Worker tcp://\S+ cannot import the module 'only_here'") as error:
            run(DaskEngine(client).executor, only_here.score, on_slice=join)
        assert all(address not in str(error.value) for address in first)
