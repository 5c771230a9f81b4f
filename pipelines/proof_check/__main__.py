"""Check proofs on random problems: python -m pipelines.proof_check. The last line is JSON, whose counts are 0."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Annotated, Any

import typer

from pipelines.processes import map_processes
from pipelines.proof_check.alternatives import Faults, check_lists_of
from pipelines.proof_check.checks import Findings, check_batch

_BATCH = 50
#: What must not be found.
_WRONG = ("false_bounds", "missed", "false_limits", "dependent", "failures")
_WRONG_IN_LISTS = ("wrong_verdicts", "wrong_lists", "false_bounds", "failures")


def main(
    problems: Annotated[int, typer.Option(help="How many random problems.", min=1)] = 1000,
    seed: Annotated[int, typer.Option(help="The seed of the problems.")] = 0,
    processes: Annotated[int, typer.Option(help="How many processes share them.", min=1)] = 1,
    only: Annotated[int | None, typer.Option(help="Check only the problem with this number.")] = None,
    alternatives: Annotated[
        bool, typer.Option("--alternatives", help="Check lists of near-best subsets, and what they say about columns.")
    ] = False,
) -> None:
    """Compare the bounds of all exact searches with the errors of subsets on random problems."""
    start = time.perf_counter()
    numbers = [only] if only is not None else list(range(problems))
    batches = [(seed, numbers[i : i + _BATCH]) for i in range(0, len(numbers), _BATCH)]
    check: Callable[[tuple[int, list[int]]], list[tuple[int, Any]]] = check_lists_of if alternatives else check_batch
    found: list[tuple[int, Faults | Findings]] = []
    for first in range(0, len(batches), 10 * processes):
        for part in map_processes(check, batches[first : first + 10 * processes], processes):
            found += part
        typer.echo(f"{len(found)} problems, {time.perf_counter() - start:.0f} s")
    wrong = _WRONG_IN_LISTS if alternatives else _WRONG
    for index, findings in found:
        for kind in wrong:
            for text in getattr(findings, kind):
                typer.echo(f"problem {index}, {kind}: {text}")
    everything = [findings for _, findings in found]
    counts = ("lists", "finished") if alternatives else ("proofs", "finished", "refused")
    figures = {
        "problems": len(found),
        **{name: sum(getattr(f, name) for f in everything) for name in counts},
        **{kind: sum(len(getattr(f, kind)) for f in everything) for kind in wrong},
        "seconds": round(time.perf_counter() - start, 1),
    }
    typer.echo(json.dumps(figures))
    raise typer.Exit(1 if any(figures[kind] for kind in wrong) else 0)


if __name__ == "__main__":
    typer.run(main)
