"""Compare the Pareto search with that of the first round (commit cfc80efc), in pairs on the same machine.

The older code is taken from the history of this checkout into the cache folder. Both compile first. Each run is a new
process with one thread that measures the processor time of the same search (2000 x 500, k = 8). The runs alternate.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

from pipelines.benchmarks.proofs.environments import cache_folder

COMMIT, PAIRS, ROOT = "cfc80efc", 7, Path(__file__).parents[2]
#: Runs in both checkouts. Only the name of the module of the search has changed.
_SCRIPT = """
import json
from pipelines.benchmarks import speed
from pipelines.benchmarks.synthetic import regression_data
objective = speed.regression(*regression_data(speed.M, speed.N))
T = speed.paper_iterations(speed.K, speed.N)
print(json.dumps(1e6 * speed.search_seconds(objective, speed.K, T, 5) / T))
"""


def compare(quick: bool) -> dict[str, Any]:
    """Return the median microseconds of an iteration then and now, and the median ratio of the pairs."""
    try:
        then = _older_checkout()
    except (OSError, subprocess.CalledProcessError) as error:
        return {"first_round": f"absent: {error}"}
    places = {"then": then, "now": ROOT}
    for place in places.values():
        _microseconds(place)  # compiles
    pairs = []
    for i in range(3 if quick else PAIRS):
        order = list(places) if i % 2 else list(places)[::-1]
        pairs.append({name: _microseconds(places[name]) for name in order})
        print(f"pair {i + 1}: {pairs[-1]['then']:.4f} us then, {pairs[-1]['now']:.4f} us now", flush=True)
    return {
        "us_per_iteration_first_round": median(pair["then"] for pair in pairs),
        "us_per_iteration_now": median(pair["now"] for pair in pairs),
        "now_over_first_round": median(pair["now"] / pair["then"] for pair in pairs),
    }


def _older_checkout() -> Path:
    folder = cache_folder() / f"first-round-{COMMIT}"
    if not (folder / "pipelines").exists():
        folder.mkdir(parents=True, exist_ok=True)
        packed = subprocess.run(["git", "archive", COMMIT], cwd=ROOT, check=True, capture_output=True).stdout
        subprocess.run(["tar", "-x", "-C", str(folder)], input=packed, check=True)
    return folder


def _microseconds(checkout: Path) -> float:
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    environment = {**os.environ, **threads, "PYTHONPATH": str(checkout)}
    command = [sys.executable, "-c", _SCRIPT]
    ran = subprocess.run(command, cwd=checkout, env=environment, check=True, capture_output=True, text=True)
    return float(json.loads(ran.stdout.splitlines()[-1]))
