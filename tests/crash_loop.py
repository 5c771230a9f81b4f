"""python -m tests.crash_loop FOLDER LIVES: a job that is killed many times, and at last left alone.

Lives are forked from one process that has imported everything, so that each is short; each takes up what the one before
left in the folder, as `dsel resume` does.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path

from dsel.config.job import JobFile
from dsel.data.as_dataset import as_dataset
from dsel.jobs.checkpoint import Checkpoints
from dsel.jobs.reporting import Reporter
from dsel.jobs.run_folder import RunFolder
from dsel.jobs.signals import Interrupts
from dsel.search.journal import Journal
from dsel.selection.context import RunContext
from dsel.selection.pipeline import run_selection
from dsel.storage.locks import locked
from tests.search.cases import random_data

X, Y = random_data(3, m=50, n=14)
SECONDS = 0.006
#: Evaluations in a life before it is killed. Together they are fewer than the search needs, however fast it is.
EVALUATIONS = (0, 1, 4, 8, 16, 32)


def job(folder: Path) -> JobFile:
    return JobFile(
        store=Path("memory"), k=3, method="pposs", seed=6, out=folder, checkpoint_evaluations=7,
        options={"processors": 24, "iterations": 2400},
    )  # fmt: skip


def live(folder: Path, seconds: float = SECONDS) -> None:
    """One life, from what the last one left to its end."""
    calls = (folder / "calls").open("a")

    def criterion(S, data) -> float:
        calls.write(f"{S}\n")
        calls.flush()
        time.sleep(seconds)
        return float(abs(data.Y[:, 0] - data.columns(S).mean(axis=1)).mean())

    dataset, described, journal = as_dataset(X, Y), job(folder), Journal(folder / "journal.jsonl")
    run = f"life-{os.getpid()}"
    with locked(folder, run) as lock, Interrupts() as interrupts:
        checkpoints = Checkpoints(described, RunFolder(folder), {}, interrupts, Reporter(), lock, journal)
        context = RunContext(
            state=checkpoints.saved, on_slice=checkpoints.on_slice, on_stage=checkpoints.on_stage,
            journal=journal,
        )  # fmt: skip
        settings = described.request()
        settings = type(settings)(**{**settings.__dict__, "criterion": criterion})
        run_selection(dataset, settings, context).save(folder)


def die(folder: Path, rng: random.Random) -> bool:
    """Live a life that is killed at a random moment: soon, or after some evaluations. Return whether it was killed."""
    calls = folder / "calls"
    before, evaluations = count(calls), rng.choice(EVALUATIONS)
    child = os.fork()
    if child == 0:
        live(folder)
        os._exit(0)
    while (
        count(calls) < before + evaluations and os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
    ):
        time.sleep(SECONDS / 10)
    time.sleep(rng.uniform(0.0, 2 * SECONDS if evaluations else 0.05))
    os.kill(child, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def count(calls: Path) -> int:
    return calls.read_bytes().count(b"\n") if calls.exists() else 0


def main(folder: Path, lives: int) -> None:
    calm, rng = folder / "calm", random.Random(1)
    calm.mkdir()
    live(calm, 0.0)
    killed = sum(die(folder, rng) for _ in range(lives))
    live(folder)
    print(killed)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
