"""python -m tests.same_results.record [--out FILE] [NAME ...]: run the cases and write the table.

With names, only cases whose name contains one of them are run, and the others stay as they are.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.same_results.cases import CASES
from tests.same_results.fields import entry, machine

TABLE = Path(__file__).with_name("table.json")


def read_table(path: Path = TABLE) -> dict[str, Any]:
    """machine, and cases by name."""
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def write_table(table: dict[str, Any], path: Path = TABLE) -> None:
    """One line a case, so that a difference between two tables is easy to read."""
    lines = [f"  {json.dumps(name)}: {json.dumps(found)}" for name, found in table["cases"].items()]
    head = json.dumps(table["machine"])
    path.write_text(f'{{"machine": {head},\n "cases": {{\n' + ",\n".join(lines) + "\n}}\n")


def main() -> None:
    """Record."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--out", type=Path, default=TABLE)
    asked.add_argument("--slow", type=float, default=1.0, help="name cases that take more seconds")
    asked.add_argument("names", nargs="*")
    given = asked.parse_args()
    old = read_table(given.out)["cases"] if given.names and given.out.exists() else {}
    found: dict[str, Any] = {}
    failed: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for case in CASES:
            if given.names and not any(name in case.name for name in given.names):
                if case.name in old:
                    found[case.name] = old[case.name]
                continue
            start = time.perf_counter()
            try:
                found[case.name] = entry(*case.found(Path(folder)))
            except Exception as error:
                failed.append(f"{case.name}: {type(error).__name__}: {error}")
                print(failed[-1], flush=True)
            if (took := time.perf_counter() - start) > given.slow:
                print(f"{took:6.1f} s  {case.name}", flush=True)
    if failed:
        raise SystemExit(f"{len(failed)} cases failed; nothing is written.")
    write_table({"machine": machine(), "cases": found}, given.out)
    print(f"{len(found)} cases in {given.out}")


if __name__ == "__main__":
    main()
