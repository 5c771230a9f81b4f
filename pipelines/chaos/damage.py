"""Damage every file of finished and interrupted folders, and run the commands on them.

`python -m pipelines.chaos --damages 500`. A file loses its end, is removed, or has one bit changed. What a command then
answers must be what it answers without damage, or an error with a documented exit code. A job that is run again must
end with the same answer. The last line is JSON: how many damages there were, how often an answer was wrong without an
error, an exit code was none of those listed here, or a command did not end. All but the first must be 0.
"""

from __future__ import annotations

import json
import random
import re
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from itertools import cycle
from pathlib import Path
from typing import Any

import yaml

from pipelines.chaos.cases import RUN, Command, arrays, digest_of_result
from pipelines.chaos.cluster import WORKERS, Cluster
from pipelines.chaos.commands import import_everything, run_here
from pipelines.chaos.findings import Findings
from pipelines.chaos.forks import Child, answer_of, fork
from pipelines.chaos.patience import Patience

#: The values of the last line of the report.
COUNTS = ("damages", "silently_wrong", "unlisted_exit_codes", "hangs")
KINDS = ("flip", "cut", "remove")
#: How often a command that writes is run on a folder on which others only read.
_WRITING = 0.3
#: How many damages there are between two lines of progress.
_SHOWN = 20
#: A command ends within this time on an idle machine.
_LONGEST = 60.0
_TIMES = re.compile(r"\d{4}-\d\d-\d\d[T ][\d:,.]+Z?|\d{8}T\d{6}Z(-\d+)?|[\d.]+ m?s\b")

_SHOW: Command = ("show", "{out}")
_SHOW_JSON: Command = ("show", "{out}", "--json")
_EXPORT: Command = ("export", "{out}", "--format", "json")
_PREDICT: Command = ("predict", "{out}", "{data}", "{folder}/predictions.zarr", "--overwrite")
_COMPARE: Command = ("compare", "{out}", "{whole}")
_REPORT: Command = ("report", "{out}", "--out", "{folder}/report.html")
_VERIFY: Command = ("verify", "{out}")
_RESUME: Command = ("resume", "{out}")
_CERTIFY: Command = ("certify", "{out}", "--time", "10m", "--log")
_READING = (_SHOW, _SHOW_JSON, _EXPORT, _PREDICT, _COMPARE, _REPORT)
#: Exit codes of a command on a damaged folder. A job that is run again ends with its answer.
_CODES = {"run": (0,), "verify": (0, 1, 65, 66)}
_OTHER_CODES = (0, 65, 66)


@dataclass(frozen=True)
class State:
    """A folder that is damaged: how it is made, and what is run on it.

    Parameters
    ----------
    name : str
        What the report calls it.
    job : dict
        Keys of the job file.
    reading, writing : tuple of commands
        Commands that only read the folder, and those that write to it.
    stopped_at : str
        The job is killed as soon as files match these patterns, separated by spaces. Empty: it runs to its end.
    series : bool
        Whether `out` is a folder of runs.
    """

    name: str
    job: dict[str, Any]
    reading: tuple[Command, ...] = ()
    writing: tuple[Command, ...] = (RUN, _RESUME)
    stopped_at: str = ""
    series: bool = False


_CRITERION = {"method": "pposs", "criterion": "pipelines.chaos.cases:slow_closeness", "checkpoint_evaluations": 20}
STATES = (
    State(
        "finished", {"method": "poss", "options": {"iterations": 20_000}, "certify": {"time": "10m", "log": True}},
        reading=(*_READING, _VERIFY), writing=(RUN, _RESUME, _CERTIFY),
    ),
    State("unfinished proof", {"method": "omp", "certify": {"nodes": 3, "log": True}},
          reading=(_SHOW, _VERIFY), writing=(RUN, _CERTIFY)),
    State("finished runs", {"method": "forward"}, reading=(_SHOW, _EXPORT), writing=(RUN,), series=True),
    State("pass", {"method": "forward", "checkpoint_seconds": 0.001}, stopped_at="out/passes/*/state.json"),
    State("search", {"method": "poss", "options": {"iterations": 500_000}, "checkpoint_seconds": 0.05},
          stopped_at="out/checkpoint.json"),
    State(
        "search by slices on workers",
        {"method": "poss", "options": {"iterations": 300_000, "max_in_flight": 4, "task_iterations": 20_000,
                                       "search_on": "workers"}, "checkpoint_seconds": 0.05},
        stopped_at="out/checkpoint.json out/objective-*.npz",
    ),
    State("search for a criterion", {**_CRITERION, "options": {"iterations": 300, "processors": 8}},
          stopped_at="out/checkpoint.json out/journal.jsonl"),
)  # fmt: skip


@dataclass
class DamageCampaign:
    """Makes the folders, and damages them.

    Parameters
    ----------
    folder : Path
        Where it works.
    states : list of State
        What is damaged.
    seed : int
        For what is drawn.
    patience : float
        The factor of all time limits.
    """

    folder: Path
    states: list[State]
    seed: int
    patience: float
    findings: Findings = field(default_factory=Findings)

    def run(self, damages: int, seconds: float) -> Findings:
        """Damage files in turn, up to a number of damages and of seconds."""
        self._random, self._patience = random.Random(self.seed), Patience(self.patience)
        self._output, self._data = self.folder / "output", self.folder / "data.zarr"
        self._cluster = Cluster(self.folder / "cluster")
        self._answers: dict[tuple[str, Command], Any] = {}
        deadline = time.monotonic() + seconds
        import_everything(sorted({str(state.job["method"]) for state in self.states}))
        try:
            self._in_child(partial(_make_store, self._data))
            turns = [self._prepared(state) for state in self.states]
            for turn in cycle(turns):
                if self.findings.counts["damages"] >= damages or time.monotonic() > deadline:
                    break
                turn()
                self._show()
        finally:
            self._cluster.end()
        return self.findings

    def _prepared(self, state: State) -> Callable[[], None]:
        """Make the folder of a state, and return a function that damages one of its files, each in its turn."""
        top = self.folder / state.name.replace(" ", "-")
        (top / "damaged").mkdir(parents=True)
        address = {"path": str(self._cluster.file), "workers": WORKERS, "wait": "10m"}
        damaged = top / "damaged"
        out = {"folder": str(damaged / "out"), "keep": 2} if state.series else str(damaged / "out")
        keys = {
            "store": str(self._data), "out": out, "statistics_folder": str(damaged / "artefacts"), "k": 4, "seed": 3,
        }  # fmt: skip
        job = {**keys, "cluster": {"scheduler_file": address}, **state.job}
        (top / "job.yaml").write_text(yaml.safe_dump(job))
        for _ in range(50):
            if self._make(state, top):
                break
        else:
            raise RuntimeError(f"the job of {state.name!r} did not get to its state: see {self._output}")
        shutil.copytree(top / "damaged", top / "whole", symlinks=True)
        for command in (*state.reading, *state.writing):
            self._restore(top)
            code, _, answer = self._attempt(state, top, command)
            if code != 0:
                raise RuntimeError(f"{state.name}: {command[0]} ends with {code} without damage: see {self._output}")
            self._answers[state.name, command] = answer
        files = cycle(sorted(file for file in (top / "whole").rglob("*") if file.is_file() and file.name != "run.log"))
        return lambda: self._turn(state, top, next(files), self._random.choice(KINDS))

    def _make(self, state: State, top: Path) -> bool:
        """Run the job to its end or to its state; return whether it is there."""
        shutil.rmtree(top / "damaged", ignore_errors=True)
        (top / "damaged").mkdir()
        child = self._start(top, RUN)
        patterns = state.stopped_at.split()
        while patterns and child.poll() is None:
            if all(any((top / "damaged").glob(pattern)) for pattern in patterns):
                child.send(signal.SIGKILL)
            time.sleep(0.001)
        code = self._patience.wait(child, _LONGEST)
        child.end()
        return code == (-signal.SIGKILL if patterns else 0)

    def _turn(self, state: State, top: Path, file: Path, kind: str) -> None:
        """Damage one file, and run some of the commands."""
        self.findings.counts["damages"] += 1
        self.findings.kinds[kind] += 1
        damaged = self._damaged(file.read_bytes(), kind)
        name = file.relative_to(top / "whole")
        commands = self._random.sample(state.reading, min(2, len(state.reading)))
        if not state.reading or self._random.random() < _WRITING:
            commands.append(self._random.choice(state.writing))
        self._restore(top)
        self._put(top / "damaged" / name, damaged)
        for command in commands:
            code, text, answer = self._attempt(state, top, command)
            where = f"{state.name}: {command[0]} after {kind} of {name}"
            listed = _CODES.get(command[0], _OTHER_CODES)
            self.findings.stages.setdefault(command[0], Counter())[str(code)] += 1
            if code is None:
                self.findings.defect("hangs", where)
            elif code not in listed or "Traceback (most recent call last)" in text:
                self.findings.defect("unlisted_exit_codes", f"{where}: {code}: {text[-400:]}")
            elif code == 0 and answer != self._answers[state.name, command]:
                self.findings.defect("silently_wrong", f"{where}: {text[-400:]}")

    def _show(self) -> None:
        if self.findings.counts["damages"] % _SHOWN == 0:
            counts = {name: self.findings.counts[name] for name in COUNTS}
            print(f"{time.strftime('%H:%M:%S')} {json.dumps(counts)}", flush=True)

    def _damaged(self, data: bytes, kind: str) -> bytes | None:
        """Return damaged content; None for a file that is removed."""
        if kind == "remove" or not data:
            return None
        if kind == "cut":
            return data[: self._random.randrange(len(data))]
        changed = bytearray(data)
        changed[self._random.randrange(len(data))] ^= 1 << self._random.randrange(8)
        return bytes(changed)

    def _put(self, file: Path, data: bytes | None) -> None:
        file.unlink()
        if data is not None:
            file.write_bytes(data)

    def _restore(self, top: Path) -> None:
        shutil.rmtree(top / "damaged")
        shutil.copytree(top / "whole", top / "damaged", symlinks=True)

    def _attempt(self, state: State, top: Path, command: Command) -> tuple[int | None, str, Any]:
        """Run a command; return its exit code, what it printed, and its answer."""
        begin = self._output.stat().st_size if self._output.exists() else 0
        child = self._start(top, command)
        code = self._patience.wait(child, _LONGEST, self._cluster.heal)
        child.end()
        with self._output.open(errors="replace") as stream:
            stream.seek(begin)
            text = stream.read()
        if code != 0:
            return code, text, None
        if command in state.writing:
            return code, text, self._in_child(partial(digest_of_result, top / "damaged" / "out"))
        if command == _PREDICT:
            return code, text, self._in_child(partial(_digest_of_predictions, top / "predictions.zarr"))
        return code, text, _TIMES.sub("", text) if command != _REPORT else "written"

    def _start(self, top: Path, command: Command) -> Child:
        self._cluster.heal()
        names = {"job": top / "job.yaml", "out": top / "damaged" / "out", "whole": top / "whole" / "out", "folder": top,
                 "data": self._data}  # fmt: skip
        words = [word.format(**names) for word in command]
        return fork(partial(run_here, words), self._output, {"TMPDIR": str(top)}, folder=top)

    def _in_child(self, work: Callable[[], Any]) -> Any:
        def wait(child: Child) -> None:
            self._patience.wait(child, _LONGEST)
            child.end()

        return answer_of(work, self._output, folder=self.folder, wait=wait)


def _make_store(path: Path) -> None:
    from dsel.data.ingest import ingest_arrays

    X, Y = arrays("data")
    ingest_arrays(X, path, y=Y, chunks=(100, 24))


def _digest_of_predictions(path: Path) -> str:
    import numpy as np
    import zarr

    values = np.asarray(zarr.open_group(path, mode="r")["prediction"])
    return blake2b(values.tobytes()).hexdigest()


def run_damages(damages: int, folder: Path | None, *, only: str, seed: int, seconds: float, patience: float) -> int:
    """Run a campaign, print what it found, and return 0 if that is nothing."""
    work = folder or Path(tempfile.mkdtemp(prefix="dsel-damage-"))
    work.mkdir(parents=True, exist_ok=True)
    states = [state for state in STATES if any(name in state.name for name in only.split(","))]
    findings = DamageCampaign(work.absolute(), states, seed, patience).run(damages, seconds)
    print("damages: " + ", ".join(f"{kind} {count}" for kind, count in sorted(findings.kinds.items())))
    for command, codes in sorted(findings.stages.items()):
        print(f"  {command}: " + ", ".join(f"exit code {code} {count} times" for code, count in sorted(codes.items())))
    for line in findings.lines:
        print(line)
    if not findings.lines and folder is None:
        shutil.rmtree(work, ignore_errors=True)
    print(json.dumps({name: findings.counts[name] for name in COUNTS}))
    return 1 if findings.lines else 0
