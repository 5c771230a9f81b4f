"""A journal replayed: the archive, and its best subset at every moment, are those of the search that wrote it."""

from __future__ import annotations

import numpy as np
import pytest

from dsel.search.anytime import Stop
from dsel.search.ask_tell import SerialExecutor
from dsel.search.journal import Journal, columns_of
from dsel.search.pareto.archive import min_index
from dsel.search.pareto.criterion import CriterionSearch
from dsel.search.pareto.evaluations import EvaluateSubsets
from dsel.search.runtime.dispatcher import Dispatcher
from tests.search.cases import random_data, regression
from tests.search.pareto.by_hand import N_COLUMNS, K, again, cover, search_of
from tests.search.runtime.replay import Columns, replayed

COLUMNS = tuple((j,) for j in range(N_COLUMNS))


def test_local_columns_are_those_of_the_data() -> None:
    whole = regression(*random_data(7, m=80, n=25))
    for keep, included in (
        (range(25), []), ([0, 3, 4, 9, 24], []), ([0, 3, 4, 9, 24], [0, 3]), ([1, 2, 3], [2]), ([7], []),
    ):  # fmt: skip
        objective = whole.restrict(np.asarray(keep)).condition(included)
        columns = Columns.from_event(columns_of(objective, 3))
        assert columns.in_data(tuple(range(objective.n))) == tuple(objective.in_data(range(objective.n)))
        assert columns.in_data(()) == tuple(objective.included)


@pytest.mark.parametrize("isolation", ["none", "min-index"])
def test_it_goes_the_way_of_the_search_and_back_where_a_process_died(tmp_path, isolation) -> None:
    own = {"isolation": min_index} if isolation == "min-index" else {}
    search = search_of(seed=2, isolation=isolation, order="arrival")
    journal = Journal(tmp_path / "journal")
    journal.write("started", solutions=[])

    def run(search: CriterionSearch, until: int) -> None:
        search.limit = until
        Dispatcher(search, SerialExecutor(EvaluateSubsets(cover, None, COLUMNS)), Stop(iterations=until), journal).run()

    run(search, 60)
    kept = search.state()
    run(search, 600)  # what is merged here is lost with the process
    lost = replayed(journal.path, K, **own)
    assert lost.points == search.archived
    search = again(search, kept)
    journal.write("resumed", solutions=search.archive.state())
    run(search, 2000)
    whole = replayed(journal.path, K, **own)
    assert whole.points == search.archived
    assert [(len(s.members), s.value) for s in whole.steps] == [(t.size, t.value) for t in search.trace]
    assert whole.steps[-1].value == search.archive.best().value == search.best_value
    assert whole.lives == 2
    assert whole.subsets > search.evaluations  # those that were merged twice
