"""Check proofs on random problems: python -m pipelines.proof_check. The last line is JSON, whose counts are 0."""

from __future__ import annotations

import json
import time
from typing import Annotated

import typer

from pipelines.processes import map_processes
from pipelines.proof_check.checks import Findings, check_batch

_BATCH = 50
#: What must not be found.
_WRONG = ("false_bounds", "missed", "false_limits", "dependent", "failures")


def main(
    problems: Annotated[int, typer.Option(help="How many random problems.", min=1)] = 1000,
    seed: Annotated[int, typer.Option(help="The seed of the problems.")] = 0,
    processes: Annotated[int, typer.Option(help="How many processes share them.", min=1)] = 1,
    only: Annotated[int | None, typer.Option(help="Check only the problem with this number.")] = None,
) -> None:
    """Compare the bounds of all exact searches with the errors of subsets on random problems."""
    start = time.perf_counter()
    numbers = [only] if only is not None else list(range(problems))
    batches = [(seed, numbers[i : i + _BATCH]) for i in range(0, len(numbers), _BATCH)]
    found: list[tuple[int, Findings]] = []
    for first in range(0, len(batches), 10 * processes):
        for part in map_processes(check_batch, batches[first : first + 10 * processes], processes):
            found += part
        typer.echo(f"{len(found)} problems, {time.perf_counter() - start:.0f} s")
    for index, findings in found:
        for kind in _WRONG:
            for text in getattr(findings, kind):
                typer.echo(f"problem {index}, {kind}: {text}")
    everything = [findings for _, findings in found]
    figures = {
        "problems": len(found),
        "proofs": sum(f.proofs for f in everything),
        "finished": sum(f.finished for f in everything),
        "refused": sum(f.refused for f in everything),
        **{kind: sum(len(getattr(f, kind)) for f in everything) for kind in _WRONG},
        "seconds": round(time.perf_counter() - start, 1),
    }
    typer.echo(json.dumps(figures))
    raise typer.Exit(1 if any(figures[kind] for kind in _WRONG) else 0)


if __name__ == "__main__":
    typer.run(main)
