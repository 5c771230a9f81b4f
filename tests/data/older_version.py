"""Write what a version of dsel saves, as the data of tests/jobs/test_older_versions.py.

usage: PYTHONPATH=CHECKOUT python tests/data/older_version.py tests/data/v0_2.tar.gz

CHECKOUT is the source tree of the version. Run it once for each release, before the next version begins. The archive
has a store with its statistics, a finished job with a certificate that is not complete and its proof log, an
interrupted job, and in calm.json the result of the second job without an interruption. All paths in it begin with ROOT,
which the tests replace.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import numpy as np

ROOT = Path("/tmp/compat")
LOCAL = {"local": {"workers": 1, "memory": "600MB"}}
BOTH = {"store": "data.zarr", "k": 3, "seed": 1, "method": "poss", "cluster": LOCAL}
JOBS = {
    "job": {**BOTH, "certify": {"nodes": 2, "log": True}, "out": "finished"},
    "long": {**BOTH, "options": {"iterations": 5_000_000}, "checkpoint_seconds": 0.2, "out": "interrupted"},
    "calm": {**BOTH, "options": {"iterations": 5_000_000}, "out": "calm"},
}


def run(name: str) -> subprocess.Popen[bytes]:
    """Start a job in a process that uses the version's source tree."""
    return subprocess.Popen([sys.executable, "-m", "dsel", "run", f"{name}.yaml"], cwd=ROOT)


def write_store() -> None:
    """Write 60 rows of 16 columns, of which no three explain much of a target: its proof takes many nodes."""
    rng = np.random.default_rng(20)
    columns = rng.standard_normal((60, 16))
    columns[:, 1:] += 0.6 * columns[:, :-1]
    target = columns @ rng.standard_normal(16) + 5.0 * rng.standard_normal(60)
    np.savez(ROOT / "data.npz", X=columns, Y=target[:, None])
    ingest = [sys.executable, "-m", "dsel", "ingest", "data.npz", "data.zarr"]
    subprocess.run(ingest, cwd=ROOT, check=True)


def main(archive: Path) -> None:
    """Write the store, run the jobs, interrupt one of them, and pack the folder."""
    shutil.rmtree(ROOT, ignore_errors=True)
    ROOT.mkdir()
    write_store()
    for name, job in JOBS.items():
        (ROOT / f"{name}.yaml").write_text(json.dumps(job, indent=1))  # JSON is YAML
    for name in ("job", "calm"):
        if run(name).wait() != 0:
            raise SystemExit(f"The job {name} failed: see above.")
    if not (ROOT / "finished" / "proof.json").exists():
        raise SystemExit("The proof is complete: give it fewer nodes.")
    interrupted = run("long")
    deadline = time.monotonic() + 120.0
    while not (ROOT / "interrupted" / "checkpoint.json").exists():
        if interrupted.poll() is not None or time.monotonic() > deadline:
            raise SystemExit("The job ended before it saved a checkpoint: give it more iterations.")
        time.sleep(0.05)
    interrupted.send_signal(signal.SIGTERM)
    if interrupted.wait() != 75:
        raise SystemExit("The job was not interrupted: give it more iterations.")
    shutil.copy(ROOT / "calm" / "selection.json", ROOT / "calm.json")
    for left in ("calm", "calm.yaml", "data.npz"):
        (shutil.rmtree if (ROOT / left).is_dir() else os.unlink)(ROOT / left)
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(ROOT, ".")
    shutil.rmtree(ROOT)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
