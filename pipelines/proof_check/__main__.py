"""Check proofs on random problems: python -m pipelines.proof_check. The last line is JSON; false_bounds must be 0."""

from __future__ import annotations

import json
import time
from typing import Annotated

import typer

from pipelines.processes import map_processes
from pipelines.proof_check.checks import Findings, check_batch

_BATCH = 50


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
        for kind in ("false_bounds", "missed", "false_limits", "failures"):
            for text in getattr(findings, kind):
                typer.echo(f"problem {index}, {kind}: {text}")
    everything = [findings for _, findings in found]
    figures = {
        "problems": len(found),
        "proofs": sum(f.proofs for f in everything),
        "finished": sum(f.finished for f in everything),
        "false_bounds": sum(len(f.false_bounds) for f in everything),
        "missed_optima": sum(len(f.missed) for f in everything),
        "false_limits": sum(len(f.false_limits) for f in everything),
        "not_finite": sum(f.not_finite for f in everything),
        "failures": sum(len(f.failures) for f in everything),
        "seconds": round(time.perf_counter() - start, 1),
    }
    typer.echo(json.dumps(figures))
    bad = any(figures[name] for name in ("false_bounds", "missed_optima", "false_limits", "failures"))
    raise typer.Exit(1 if bad else 0)


if __name__ == "__main__":
    typer.run(main)
