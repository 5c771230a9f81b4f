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
from pipelines.proof_check.losses import LossFindings, check_losses_of
from pipelines.proof_check.options import OptionFindings, check_options_of

_BATCH = 50
#: What must not be found.
_WRONG = ("false_bounds", "missed", "false_limits", "dependent", "failures")
_WRONG_IN_LISTS = ("wrong_verdicts", "wrong_lists", "false_bounds", "failures")
_WRONG_FOR_OPTIONS = ("wrong", "failures")
_WRONG_FOR_LOSSES = ("false_bounds", "missed", "failures")


def main(
    problems: Annotated[int, typer.Option(help="How many random problems.", min=1)] = 1000,
    seed: Annotated[int, typer.Option(help="The seed of the problems.")] = 0,
    processes: Annotated[int, typer.Option(help="How many processes share them.", min=1)] = 1,
    only: Annotated[int | None, typer.Option(help="Check only the problem with this number.")] = None,
    alternatives: Annotated[
        bool, typer.Option("--alternatives", help="Check lists of near-best subsets, and what they say about columns.")
    ] = False,
    losses: Annotated[
        bool, typer.Option("--losses", help="Check proofs for losses against fits in extended precision.")
    ] = False,
    options: Annotated[
        bool, typer.Option("--options", help="Check answers to random pairs and triples of options.")
    ] = False,
) -> None:
    """Compare the bounds of all exact searches with the errors of subsets on random problems."""
    start = time.perf_counter()
    numbers = [only] if only is not None else list(range(problems))
    batches = [(seed, numbers[i : i + _BATCH]) for i in range(0, len(numbers), _BATCH)]
    check: Callable[[tuple[int, list[int]]], list[tuple[int, Any]]] = check_batch
    wrong: tuple[str, ...] = _WRONG
    counts: tuple[str, ...] = ("proofs", "finished", "refused")
    if alternatives:
        check, wrong, counts = check_lists_of, _WRONG_IN_LISTS, ("lists", "finished")
    elif losses:
        check, wrong, counts = check_losses_of, _WRONG_FOR_LOSSES, ("proofs", "finished")
    elif options:
        check, wrong, counts = check_options_of, _WRONG_FOR_OPTIONS, ("answers", "refused")
    found: list[tuple[int, Faults | Findings | LossFindings | OptionFindings]] = []
    for first in range(0, len(batches), 10 * processes):
        for part in map_processes(check, batches[first : first + 10 * processes], processes):
            found += part
        typer.echo(f"{len(found)} problems, {time.perf_counter() - start:.0f} s")
    for index, findings in found:
        for kind in wrong:
            for text in getattr(findings, kind):
                typer.echo(f"problem {index}, {kind}: {text}")
    everything = [findings for _, findings in found]
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
