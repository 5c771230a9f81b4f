"""Segments: the rows of each append are listed, become visible by one write, and keep their fingerprints."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from dsel.cli import app
from dsel.data.as_dataset import as_dataset
from dsel.data.info import describe, render
from dsel.data.ingest import ingest_arrays
from dsel.data.store.reader import open_store
from dsel.data.store.segments import begin_append, compact, merge_plan, publish_append, read_segments
from dsel.errors import DataError
from tests.stores import append_rows, write_rows

X = np.random.default_rng(3).standard_normal((40, 5))
Y = X[:, :1] + 1


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """10 rows in row blocks of 4; 30 more rows are to come."""
    ingest_arrays(X[:10], tmp_path / "s.zarr", y=Y[:10], chunks=(4, 3), weight=np.ones(10))
    return tmp_path / "s.zarr"


def fingerprints(path: Path) -> list[str]:
    return [segment.fingerprint() for segment in open_store(path).segments]


def ranges(path: Path) -> list[tuple[int, int]]:
    return [(segment.start, segment.stop) for segment in open_store(path).segments]


def test_a_store_that_nothing_was_appended_to_is_one_segment(path: Path) -> None:
    assert ranges(path) == [(0, 10)]
    assert datetime.fromisoformat(open_store(path).segments[0].time).tzinfo is UTC


def test_each_append_is_a_segment_and_the_old_ones_keep_their_fingerprints(path: Path) -> None:
    before = fingerprints(path)
    for stop in (11, 13, 29, 40):
        append_rows(path, X[:stop], Y[:stop])
        assert fingerprints(path)[:-1] == before
        before = fingerprints(path)
    assert ranges(path) == [(0, 10), (10, 11), (11, 13), (13, 29), (29, 40)]
    assert len(set(before)) == 5
    np.testing.assert_array_equal(open_store(path).x.read(0, 40), X)


@pytest.mark.parametrize("written", [0, 1, 2])
def test_readers_see_the_old_rows_until_the_append_is_published(path: Path, written: int) -> None:
    before, digest = fingerprints(path), as_dataset(str(path)).fingerprint
    begin_append(path, 10)
    if written:
        write_rows(path, X[:25], Y[:25])
    if written == 2:
        begin_append(path, 10)  # the append was interrupted, and begins again
    assert open_store(path).shape == (10, 5)
    assert open_store(path).row_bounds == [0, 4, 8, 10]
    assert fingerprints(path) == before
    assert as_dataset(str(path)).m == 10
    publish_append(path, 25) if written else None
    assert open_store(path).shape == ((25, 5) if written else (10, 5))
    assert fingerprints(path)[:1] == before
    assert digest


def test_only_the_segment_that_was_rewritten_gets_another_fingerprint(path: Path) -> None:
    for stop in (20, 32, 40):
        append_rows(path, X[:stop], Y[:stop])
    before = fingerprints(path)
    zarr.open_group(path)["X"][21:24] = 7.0  # rows 20 to 24 are one row of chunks
    changed = [a != b for a, b in zip(before, fingerprints(path), strict=True)]
    assert changed == [False, False, True, False]
    append_rows(path, np.vstack([X, X])[:44], np.vstack([Y, Y])[:44])
    assert [a != b for a, b in zip(before, fingerprints(path)[:4], strict=True)] == changed


def test_a_rewritten_file_changes_the_fingerprint_even_if_its_content_is_the_same(path: Path) -> None:
    before = fingerprints(path)
    os.utime(path / "X" / "c" / "0" / "0", ns=(1, 1))
    assert fingerprints(path) != before


def test_compacting_merges_the_smallest_neighbours(path: Path) -> None:
    for stop in (12, 13, 30, 40):
        append_rows(path, X[:stop], Y[:stop])
    before = fingerprints(path)
    compact(path, 40, 4)
    assert ranges(path) == [(0, 10), (10, 13), (13, 30), (30, 40)]
    after = fingerprints(path)
    assert [after[0], *after[2:]] == [before[0], *before[3:]]
    compact(path, 40, 1)
    assert ranges(path) == [(0, 40)]


def test_an_append_merges_small_segments_beyond_a_number(path: Path) -> None:
    for stop in range(11, 21):
        append_rows(path, X[:stop], Y[:stop], most=4)
    assert len(ranges(path)) == 4
    assert ranges(path)[-1][1] == 20


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=30), st.integers(1, 40))
def test_merged_segments_cover_all_rows_in_order(rows: list[int], most: int) -> None:
    plan = merge_plan(rows, most)
    assert len(plan) == min(len(rows), most)
    assert [i for first, last in plan for i in range(first, last)] == list(range(len(rows)))


@pytest.mark.parametrize("broken", [{"segments": []}, 3, {"appending": False, "segments": [{"start": 1, "stop": 5}]}])
def test_a_damaged_list_is_an_error(path: Path, broken: object) -> None:
    zarr.open_group(path).attrs["dsel_segments"] = broken
    with pytest.raises(DataError, match=r"list of segments .* damaged"):
        open_store(path)


def test_a_variable_that_is_named_counts_as_well(path: Path) -> None:
    zarr.open_group(path).create_array("w2", data=np.ones(10), dimension_names=["sample"])
    (segment,) = read_segments(path, 10)
    assert sorted(segment.known) == ["X", "Y", "weight"]
    before = open_store(path).fingerprint("w2")
    assert before != open_store(path).fingerprint()
    zarr.open_group(path)["w2"][:] = 2.0
    assert open_store(path).fingerprint("w2") != before


def test_info_lists_the_segments(path: Path) -> None:
    assert not any(line.startswith("segments") for line in render(describe(path)).splitlines())
    for stop in range(11, 31):
        append_rows(path, X[:stop], Y[:stop])
    info = describe(path)
    assert [(one["start"], one["stop"]) for one in info.as_dict()["segments"]] == ranges(path)
    lines = render(info).splitlines()
    first = lines.index("segments: 21")
    assert lines[first + 1].startswith("  rows 0 to 10, 20")
    assert lines[first + 6] == "  ..."
    assert lines[first + 11].startswith("  rows 29 to 30, 20")
    assert not any("dsel_segments" in line for line in lines)


def test_the_command_compact_merges_segments(path: Path) -> None:
    for stop in (12, 13, 30, 40):
        append_rows(path, X[:stop], Y[:stop])
    found = CliRunner().invoke(app, ["compact", str(path), "--segments", "2"])
    assert (found.exit_code, found.stdout.strip()) == (0, f"{path} has 2 segments.")
    assert ranges(path) == [(0, 13), (13, 40)]
    assert not path.with_name("s.zarr.ingesting").exists()
    assert CliRunner().invoke(app, ["compact", str(path.parent / "none.zarr")]).exit_code != 0


def test_compacting_between_two_attempts_of_an_append_keeps_the_fingerprints(path: Path) -> None:
    append_rows(path, X[:20], Y[:20])
    before = fingerprints(path)
    begin_append(path, 20)
    write_rows(path, X[:30], Y[:30])
    compact(path, 20, 2)
    assert fingerprints(path) == before
    publish_append(path, 30)
    assert fingerprints(path)[:2] == before
