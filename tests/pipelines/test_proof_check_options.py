"""A few calls with random pairs and triples of options, whose answers are compared with all subsets."""

from __future__ import annotations

import json

import pytest
import typer

from pipelines.proof_check.__main__ import main
from pipelines.proof_check.drawn_options import draw
from pipelines.proof_check.options import OptionFindings, check_options


@pytest.mark.parametrize("index", range(20, 54))
def test_answers_are_those_of_all_subsets(index: int) -> None:
    found = check_options(4, index)
    assert found == OptionFindings(1, found.answers, found.refused)
    assert found.answers + found.refused >= 1


def test_a_wrong_error_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    import dsel

    select = dsel.select
    index = next(i for i in range(100) if check_options(4, i).answers)

    def wrong(*args: object, **asked: object) -> object:
        answer = select(*args, **asked)  # type: ignore[arg-type]
        object.__setattr__(answer, "r2", answer.r2 - 0.01)
        return answer

    monkeypatch.setattr(dsel, "select", wrong)
    assert any(text.startswith("r2") for text in check_options(4, index).wrong), draw(4, index)


def test_the_command_counts_answers_and_refusals(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended:
        main(problems=3, seed=4, processes=1, only=None, alternatives=False, losses=False, options=True)
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (figures["problems"], figures["wrong"], figures["failures"], ended.value.exit_code) == (3, 0, 0, 0)
    assert figures["answers"] + figures["refused"] >= 3
