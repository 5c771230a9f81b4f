"""Every case gives what the table holds.

On another processor or with other libraries the last bits may differ without a fault of the code. There only some
fields are compared, floats nearly; to compare all, record the table again there, from the code before the change.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from tests.same_results.cases import CASES, Case
from tests.same_results.fields import entry, machine
from tests.same_results.record import read_table

TABLE = read_table()
#: Compared on another machine too.
LASTING = ("indices", "labels", "error", "r2", "passes", "bytes_read", "targets", "constant", "stages", "fits", "code")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("same")


def test_the_table_and_the_cases_have_the_same_names() -> None:
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names)
    assert sorted(names) == sorted(TABLE["cases"])


@pytest.mark.filterwarnings("ignore:Sending large graph")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_it_is_what_it_was(case: Case, folder: Path) -> None:
    recorded = TABLE["cases"][case.name]
    found = entry(*case.found(folder))
    if TABLE["machine"] == machine():
        if found["digest"] != recorded["digest"]:
            pytest.fail(_differences(recorded, found), pytrace=False)
        return
    for name in LASTING:
        before, now = recorded["fields"].get(name), found["fields"].get(name)
        assert _nearly(before, now), f"{name} was {before}, now {now} (on another machine than recorded)"


def _differences(recorded: dict[str, Any], found: dict[str, Any]) -> str:
    """The fields that differ, before and now."""
    before, now = recorded["fields"], found["fields"]
    lines = [f"recorded: {json.dumps(recorded['shown'])}", f"now:      {json.dumps(found['shown'])}"]
    for name in sorted({*before, *now}):
        if before.get(name) != now.get(name):
            lines += [f"{name} was {_readable(before.get(name))}", f"{name} is  {_readable(now.get(name))}"]
    return "\n".join(lines)


def _readable(value: Any) -> str:
    """Floats in decimals, with all their digits."""
    if isinstance(value, str) and _is_float(value):
        return repr(float.fromhex(value))
    if isinstance(value, list):
        return "[" + ", ".join(map(_readable, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {_readable(one)}" for name, one in value.items()) + "}"
    return str(value)


def _is_float(text: str) -> bool:
    return text.lstrip("-").startswith("0x") or text in ("inf", "-inf", "nan")


def _nearly(before: Any, now: Any) -> bool:
    if isinstance(before, str) and isinstance(now, str) and _is_float(before) and _is_float(now):
        return math.isclose(float.fromhex(before), float.fromhex(now), rel_tol=1e-7, abs_tol=1e-7)
    return bool(before == now)
