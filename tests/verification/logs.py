"""Small proofs with a log, and a way to change single records of a log."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import yaml

from dsel.config.job import read_job
from dsel.data.as_dataset import as_dataset
from dsel.data.ingest import ingest_arrays
from dsel.jobs.certify_folder import certify_run
from dsel.jobs.locations import identity_of
from dsel.jobs.proof_store import ProofBudget
from dsel.jobs.run_folder import RunFolder
from dsel.selection.pipeline import run_selection

END, PRUNED, COMPARED, BRANCHED, DEPENDENT, DROPPED, CORES, SPLIT = range(8)


def finished_run(folder, X, Y, k, **request):
    """Ingest the data, select columns, and return the folder of the result."""
    ingest_arrays(X, folder / "store", y=Y)
    values = {"store": str(folder / "store"), "k": k, "method": "omp", **request}
    (folder / "job.yaml").write_text(yaml.safe_dump(values))
    job = read_job(folder / "job.yaml", folder / "result")
    dataset = as_dataset(str(job.store), unsupervised=job.unsupervised)
    selection = run_selection(dataset, job.request())
    job.out.mkdir()
    RunFolder(job.out).claim(job, identity_of(job, dataset))
    selection.save(job.out)
    return job.out


def certified_run(folder, X, Y, k, *, nodes=None, workers=1, sizes="chosen", **request):
    """Return the folder of a result with a proof and its log."""
    out = finished_run(folder, X, Y, k, **request)
    once = 3600.0  # a save while kernels compile would divide the log into more files
    certify_run(out, ProofBudget(nodes=nodes, sizes=sizes, log=True, save_seconds=once), workers)
    return out


def noisy(seed, m, n, N=1):
    """Correlated columns, and targets that are mostly noise: proofs of some hundred nodes."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((m, n)) @ (np.eye(n) + rng.standard_normal((n, n)) / 3)
    return X, X[:, :5] @ rng.standard_normal((5, N)) + 8 * rng.standard_normal((m, N))


@dataclass
class Record:
    """A record of a log: its code, its numbers from `start` to `end`, and its first bound."""

    code: int
    start: int
    end: int
    bound: int


class LogFolder:
    """A log whose numbers and bounds can be changed."""

    def __init__(self, folder: Path, name: str = "000000.npz") -> None:
        self.folder, self.file = folder, folder / name
        self.manifest = json.loads((folder / "manifest.json").read_text())
        with np.load(self.file) as arrays:
            self.numbers, self.bounds = arrays["numbers"].tolist(), arrays["bounds"].tolist()

    def save(self) -> None:
        (self.folder / "manifest.json").write_text(json.dumps(self.manifest))
        np.savez_compressed(self.file, numbers=np.array(self.numbers, np.uint16), bounds=np.float32(self.bounds))

    def segments(self) -> list[tuple[int, int]]:
        """Return where each segment begins and ends."""
        self.records()
        return self._segments

    def records(self, code: int | None = None) -> list[Record]:
        """Return the records, or those with one code."""
        numbers, found, place, bound = self.numbers, [], 0, 0
        self._segments = []
        while place < len(numbers):
            start = place
            nodes, place = numbers[place], place + 1
            for _ in range(nodes):
                place += 2 + numbers[place] + numbers[place + 1]
            while numbers[place] != END:
                record = Record(numbers[place], place, place + 1, bound)
                if record.code == PRUNED:
                    bound += 1
                elif record.code == SPLIT:
                    record.end += 1
                elif record.code == DROPPED:
                    record.end += 1 + numbers[place + 1]
                elif record.code == CORES:
                    record.end += 1
                    for _ in range(numbers[place + 1]):
                        record.end += 1 + numbers[record.end]
                    bound += numbers[place + 1]
                elif record.code == BRANCHED:
                    record.end += 1 + numbers[place + 1]
                    bound += 1 + numbers[record.end]
                    record.end += 1 + numbers[record.end]
                found.append(record)
                place = record.end
            place += 1
            self._segments.append((start, place))
        return [record for record in found if code is None or record.code == code]
