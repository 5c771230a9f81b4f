"""Ingest: a store is complete or absent, is resumed where it stopped, and replaces nothing else; memory is bounded."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections import namedtuple
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dsel.data.append.append import append
from dsel.data.ingest import ingest, ingest_arrays
from dsel.data.schema import staging_path
from dsel.data.store import dense_writer as writing
from dsel.data.store.reader import open_store
from dsel.data.store.staging import Staging
from dsel.errors import CapacityError, DataError, MissingInputError, OptionError, OutputError
from dsel.storage import locks
from dsel.storage.leftovers import machine
from dsel.storage.locks import locked
from tests.cli_runner import LIMIT, Forked

M, N, ROWS = 23, 5, 7
BLOCKS = [7, 14, 21, 23]  # rows done after each block
X = np.random.default_rng(5).standard_normal((M, N))
REPOSITORY = Path(__file__).parents[2]


class Stop(Exception):
    pass


def stop_after(rows: int) -> Any:
    def progress(done: int, total: int) -> None:
        assert total == M
        if done == rows:
            raise Stop

    return progress


def make_source(folder: Path, kind: str, values: np.ndarray = X) -> tuple[Path, dict[str, Any]]:
    """Write a source of each kind with X, one target and, if the format has them, sample labels; return its options."""
    path, labels = folder / f"d.{kind.removesuffix(' packed')}", [f"s{i}" for i in range(M)]
    if kind == "npy":
        np.save(path, values)
        np.save(folder / "y.npy", values[:, 0])
        return path, {"y": folder / "y.npy"}
    if kind.startswith("npz"):
        save = np.savez_compressed if "packed" in kind else np.savez
        save(path, X=np.asfortranarray(values), Y=values[:, 0], sample_names=np.array(labels))
        return path, {}
    columns = {"label": labels, **{f"f{j}": values[:, j] for j in range(N)}, "t": values[:, 0]}
    if kind == "csv":
        rows = zip(*(map(str, column) for column in columns.values()), strict=True)
        path.write_text("\n".join([",".join(columns), *map(",".join, rows)]))
    else:
        pq.write_table(pa.table(columns), path, row_group_size=4)
    return path, {"target": ["t"], "index": "label"}


def contents(store: Path) -> dict[str, bytes]:
    """Return every file except the metadata of the group, which contain the time of creation."""
    return {str(f.relative_to(store)): f.read_bytes() for f in store.rglob("*") if f.is_file() and f.parent != store}


# --- resuming ---


@pytest.mark.parametrize("kind", ["npy", "npz", "npz packed", "csv", "parquet"])
@pytest.mark.parametrize("rows", BLOCKS)
def test_interrupted_after_any_block_the_same_call_continues(tmp_path: Path, kind: str, rows: int) -> None:
    source, options = make_source(tmp_path, kind)
    options["chunks"] = (ROWS, 2)
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    ingest(source, whole, **options)
    with pytest.raises(Stop):
        ingest(source, parts, **options, progress=stop_after(rows))
    assert not parts.exists()
    with pytest.raises(MissingInputError, match="interrupted"):
        open_store(parts)
    written: list[int] = []
    report = ingest(source, parts, **options, progress=lambda done, _: written.append(done))
    assert report.resumed_rows == rows
    assert written == [done for done in BLOCKS if done > rows]
    assert contents(parts) == contents(whole)
    assert not staging_path(parts).exists()


def test_an_interrupted_call_may_be_interrupted_again(tmp_path: Path) -> None:
    source, options = make_source(tmp_path, "npy")
    options["chunks"] = (ROWS, N)
    for rows in BLOCKS:
        with pytest.raises(Stop):
            ingest(source, tmp_path / "s", **options, progress=stop_after(rows))
    assert ingest(source, tmp_path / "s", **options).resumed_rows == M
    np.testing.assert_array_equal(open_store(tmp_path / "s").x.read(0, M), X)


@pytest.mark.parametrize("change", ["content", "dtype", "chunks", "compression", "y"])
def test_a_changed_source_or_option_starts_clean(tmp_path: Path, change: str) -> None:
    source, options = make_source(tmp_path, "npy")
    options["chunks"] = (ROWS, N)
    with pytest.raises(Stop):
        ingest(source, tmp_path / "s", **options, progress=stop_after(14))
    values = X
    if change == "content":
        values = X + 1
        np.save(source, values)
    else:
        new = {"dtype": "float32", "chunks": (6, N), "compression": "lz4", "y": None}
        options[change] = new[change]
    assert ingest(source, tmp_path / "s", **options).resumed_rows == 0
    store = open_store(tmp_path / "s")
    np.testing.assert_array_equal(store.x.read(0, M), values.astype(store.dtype))
    assert store.n_targets == (0 if change == "y" else 1)


def test_a_block_half_written_when_killed_is_written_again(tmp_path: Path) -> None:
    """Chunks after the last complete row of chunks are not trusted."""
    source, options = make_source(tmp_path, "npy")
    with pytest.raises(Stop):
        ingest(source, tmp_path / "s", **options, chunks=(ROWS, 2), progress=stop_after(7))
    partial = staging_path(tmp_path / "s") / "store/X/c/1/0"
    partial.parent.mkdir()
    partial.write_bytes(b"half")
    assert ingest(source, tmp_path / "s", **options, chunks=(ROWS, 2)).resumed_rows == 7
    np.testing.assert_array_equal(open_store(tmp_path / "s").x.read(0, M), X)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"rows": 7}'])
def test_a_damaged_progress_file_starts_clean(tmp_path: Path, text: str) -> None:
    source, options = make_source(tmp_path, "npy")
    with pytest.raises(Stop):
        ingest(source, tmp_path / "s", **options, chunks=(ROWS, N), progress=stop_after(7))
    (staging_path(tmp_path / "s") / "progress.json").write_text(text)
    assert ingest(source, tmp_path / "s", **options, chunks=(ROWS, N)).resumed_rows == 0
    np.testing.assert_array_equal(open_store(tmp_path / "s").x.read(0, M), X)


def test_a_killed_process_leaves_nothing_that_looks_complete(tmp_path: Path) -> None:
    source, _ = make_source(tmp_path, "csv")
    script = f"""
        import os, signal
        from dsel.data.ingest import ingest
        def kill(done, rows):
            if done == 14:
                os.kill(os.getpid(), signal.SIGKILL)
        options = dict(target=["t"], index="label", chunks=(7, 5))
        ingest({str(source)!r}, {str(tmp_path / "s")!r}, **options, progress=kill)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], cwd=REPOSITORY, check=False)
    assert done.returncode == -signal.SIGKILL
    assert not (tmp_path / "s").exists()
    report = ingest(source, tmp_path / "s", target=["t"], index="label", chunks=(7, 5))
    assert report.resumed_rows == 14
    np.testing.assert_array_equal(open_store(tmp_path / "s").x.read(0, M), X)


def test_a_source_that_changes_while_it_is_read_is_refused(tmp_path: Path) -> None:
    source, options = make_source(tmp_path, "npy")

    def touch(done: int, rows: int) -> None:
        os.utime(source, ns=(done, done))

    with pytest.raises(DataError, match="changed while it was read"):
        ingest(source, tmp_path / "s", **options, chunks=(ROWS, N), progress=touch)
    assert not (tmp_path / "s").exists()
    assert ingest(source, tmp_path / "s", **options, chunks=(ROWS, N)).resumed_rows == 0


def test_a_bad_value_late_in_the_source_publishes_nothing(tmp_path: Path) -> None:
    source, options = make_source(tmp_path, "csv")
    source.write_text(source.read_text().replace(str(X[20, 3]), "red"))
    with pytest.raises(DataError, match="row 20, column 'f3': 'red'"):
        ingest(source, tmp_path / "s", **options, chunks=(ROWS, N))
    assert not (tmp_path / "s").exists()


# --- the target ---


def test_an_existing_store_is_kept_unless_overwritten(tmp_path: Path) -> None:
    ingest_arrays(X, tmp_path / "s")
    before = contents(tmp_path / "s")
    with pytest.raises(OutputError, match="exists already"):
        ingest_arrays(X + 1, tmp_path / "s")
    assert contents(tmp_path / "s") == before
    ingest_arrays(X + 1, tmp_path / "s", overwrite=True)
    np.testing.assert_array_equal(open_store(tmp_path / "s").x.read(0, M), X + 1)
    assert os.listdir(tmp_path) == ["s"]


def test_the_old_store_stays_until_the_new_one_is_complete(tmp_path: Path) -> None:
    source, options = make_source(tmp_path, "npy", X + 1)
    ingest_arrays(X, tmp_path / "s")
    with pytest.raises(Stop):
        ingest(source, tmp_path / "s", **options, chunks=(ROWS, N), overwrite=True, progress=stop_after(M))
    np.testing.assert_array_equal(open_store(tmp_path / "s").x.read(0, M), X)


def test_killed_between_the_two_renames_the_same_call_publishes(tmp_path: Path) -> None:
    source, options = make_source(tmp_path, "npy", X + 1)
    with pytest.raises(Stop):
        ingest(source, tmp_path / "s", **options, chunks=(ROWS, N), progress=stop_after(M))
    ingest_arrays(X, tmp_path / "old")
    (tmp_path / "old").rename(staging_path(tmp_path / "s") / "replaced")
    assert ingest(source, tmp_path / "s", **options, chunks=(ROWS, N), overwrite=True).resumed_rows == M
    np.testing.assert_array_equal(open_store(tmp_path / "s").x.read(0, M), X + 1)
    assert not staging_path(tmp_path / "s").exists()


@pytest.mark.parametrize("lock", [{"run": "dead", "machine": machine(), "pid": 2**22 + 1, "started": 0.0}, None])
def test_killed_after_the_store_appeared_the_next_call_removes_what_is_left(
    tmp_path: Path, lock: dict[str, Any] | None
) -> None:
    def killed(self: Staging) -> None:
        raise Stop

    source, options = make_source(tmp_path, "npy")
    left = staging_path(tmp_path / "s")
    for _ in "ab":
        with patch.object(Staging, "forget", killed), pytest.raises(Stop):
            ingest(source, tmp_path / "s", **options, overwrite=True)
        assert (left / "progress.json").exists()
        if lock is not None:
            (left / ".lock").write_text(json.dumps(lock))
        np.testing.assert_array_equal(open_store(tmp_path / "s").x.read(0, M), X)
    with pytest.raises(OutputError, match="exists already"):
        ingest(source, tmp_path / "s", **options)
    assert not left.exists()

    with patch.object(Staging, "forget", killed), pytest.raises(Stop):
        ingest(source, tmp_path / "s", **options, overwrite=True)
    assert append(source, tmp_path / "s", **options).shape == (2 * M, N)
    assert not left.exists()


def test_a_folder_that_is_not_a_store_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis/chapter.txt").write_text("years of work")
    with pytest.raises(OutputError, match="not a Zarr store"):
        ingest_arrays(X, tmp_path / "thesis", overwrite=True)
    assert (tmp_path / "thesis/chapter.txt").exists()


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"no folder .*absent"):
        ingest_arrays(X, tmp_path / "absent/s")


def test_a_folder_that_is_not_writable_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write everywhere
    with pytest.raises(OutputError, match="not writable"):
        ingest_arrays(X, tmp_path / "s")


def test_too_little_disk_is_refused_with_numbers_before_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    needed = 4 * ROWS * N * 8
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(0, 0, needed - 1))
    with pytest.raises(CapacityError, match=r"needs [\d.]+ kiB more on a disk with [\d.]+ \w+ free"):
        ingest_arrays(X, tmp_path / "s", chunks=(ROWS, N))
    assert os.listdir(tmp_path) == []
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(0, 0, needed))
    ingest_arrays(X, tmp_path / "s", chunks=(ROWS, N))


def test_a_full_disk_is_a_capacity_error_and_the_call_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, options = make_source(tmp_path, "npy")
    real = writing._store

    def full(array: Any, first: int, band: Any) -> None:
        if first == 14:
            raise OSError(28, "No space left on device")
        real(array, first, band)

    monkeypatch.setattr(writing, "_store", full)
    with pytest.raises(CapacityError, match="disk is full"):
        ingest(source, tmp_path / "s", **options, chunks=(ROWS, N))
    monkeypatch.setattr(writing, "_store", real)
    assert ingest(source, tmp_path / "s", **options, chunks=(ROWS, N)).resumed_rows == 14


def test_two_processes_cannot_write_one_store(tmp_path: Path) -> None:
    with locked(staging_path(tmp_path / "s"), "first", "s"):
        with pytest.raises(OutputError, match=r"Another run is writing to .*s: run first \(process"):
            ingest_arrays(X, tmp_path / "s")
        assert not (tmp_path / "s").exists()
    ingest_arrays(X, tmp_path / "s")
    assert not staging_path(tmp_path / "s").exists()


def test_a_process_that_lost_the_lock_writes_nothing_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, options = make_source(tmp_path, "npy")
    real = writing._store

    def taken_over(array: Any, first: int, band: Any) -> None:
        real(array, first, band)
        (staging_path(tmp_path / "s") / ".lock-1").write_text('{"run": "second", "host": "elsewhere"}')

    monkeypatch.setattr(writing, "_store", taken_over)
    monkeypatch.setattr(locks, "BEAT_SECONDS", 0.1)
    with pytest.raises(OutputError, match=r"lost its lock .* run second"):
        ingest(source, tmp_path / "s", **options, chunks=(ROWS, N))
    assert not (tmp_path / "s").exists()
    assert not (staging_path(tmp_path / "s") / "store/X/c/1/0").exists()


# --- the report, and the layout ---


def test_the_report(tmp_path: Path) -> None:
    source, options = make_source(tmp_path, "csv")
    report = ingest(source, tmp_path / "s", **options, chunks=(ROWS, 2))
    assert (report.shape, report.targets, report.dtype, report.chunks) == ((M, N), 1, "float64", (ROWS, 2))
    assert report.bytes_written == sum(f.stat().st_size for f in (tmp_path / "s").rglob("*") if f.is_file())
    assert report.resumed_rows == 0
    assert report.seconds > 0
    attributes = open_store(tmp_path / "s").attributes
    assert attributes["dsel_source"] == "d.csv"
    assert {"dsel_created", "dsel_version", "dsel_format"} <= set(attributes)


@pytest.mark.parametrize("compression", ["none", "zstd", "lz4"])
def test_every_compression_round_trips_with_a_checksum(tmp_path: Path, compression: str) -> None:
    values = np.repeat(np.arange(50.0), 40).reshape(200, 10)
    ingest_arrays(values, tmp_path / "s", compression=compression, chunks=(64, 10))
    np.testing.assert_array_equal(open_store(tmp_path / "s").x.read(0, 200), values)
    metadata = json.loads((tmp_path / "s/X/zarr.json").read_text())
    assert metadata["codecs"][-1]["name"] == "crc32c"
    assert metadata["fill_value"] == "NaN"
    size = (tmp_path / "s/X/c/0/0").stat().st_size
    assert (size == 64 * 10 * 8 + 4) if compression == "none" else (size < 64 * 10 * 4)


@pytest.mark.parametrize("option", [{"compression": "gzip"}, {"chunks": (0, 5)}])
def test_options_out_of_range(tmp_path: Path, option: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match=next(iter(option))):
        ingest_arrays(X, tmp_path / "s", **option)


def test_chunks_are_chosen_for_the_memory_of_a_worker(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((4000, 50), "float32"))
    report = ingest(tmp_path / "x.npy", tmp_path / "s", worker_memory=16 * 200 * 1000)
    assert report.chunks == (1000, 50)


def test_wide_data_goes_through_a_file_when_a_row_of_chunks_does_not_fit(tmp_path: Path) -> None:
    values = np.random.default_rng(0).standard_normal((300, 1000)).astype("float32")
    np.savez_compressed(tmp_path / "d.npz", X=values)
    report = ingest(tmp_path / "d.npz", tmp_path / "s", worker_memory=800_000, chunks=(300, 40))
    assert report.chunks == (300, 40)
    np.testing.assert_array_equal(open_store(tmp_path / "s").x.read(0, 300), values)
    assert sorted(os.listdir(tmp_path)) == ["d.npz", "s"]


LARGE = {
    "rows in C order": ("npy", "C", (40_000, 250)),
    "rows in Fortran order": ("npy", "F", (40_000, 250)),
    "npz": ("npz", "C", (40_000, 250)),
    "packed Fortran npz": ("npz packed", "F", (40_000, 250)),
    "packed wide npz": ("npz packed", "C", (500, 20_000)),
    "csv": ("csv", "C", (40_000, 250)),
    "parquet": ("parquet", "C", (40_000, 250)),
}


@pytest.mark.parametrize("case", LARGE)
def test_memory_stays_far_below_the_source(tmp_path: Path, case: str) -> None:
    """80 MB of X on a worker of 64 MB: the process may grow by 64 MB beyond its imports."""
    kind, order, shape = LARGE[case]
    values = np.zeros(shape, order=order)  # type: ignore[call-overload]
    values[:, ::3] = 1.5
    source = save_large(tmp_path / f"d.{kind.removesuffix(' packed')}", kind, values)
    script = f"""
        import re, threading, time, numpy as np, pyarrow.parquet
        from pathlib import Path
        from dsel.data.ingest import ingest, ingest_arrays
        def memory():  # without pages of mapped files, which the system may free at any time
            return int(re.search(r"RssAnon:\\s*(\\d+)", Path("/proc/self/status").read_text())[1]) * 1024
        ingest_arrays(np.zeros((9, 9)), {str(tmp_path / "warm")!r})
        before, peak, done = memory(), 0, False
        def watch():
            global peak
            while not done:
                peak = max(peak, memory())
                time.sleep(0.002)
        watcher = threading.Thread(target=watch, daemon=True)  # an error ends the process
        watcher.start()
        ingest({str(source)!r}, {str(tmp_path / "s")!r}, worker_memory=64_000_000)
        done = True
        watcher.join()
        print(peak - before)
    """
    process = Forked(textwrap.dedent(script))
    out, err = process.communicate(LIMIT)
    assert process.returncode == 0, err
    assert int(out) < 64_000_000
    store = open_store(tmp_path / "s")
    for start, stop in pairwise(store.row_bounds):
        np.testing.assert_array_equal(store.x.read(start, stop), values[start:stop])


def save_large(path: Path, kind: str, values: np.ndarray) -> Path:
    if kind == "npy":
        np.save(path, values)
    elif kind == "npz":
        np.savez(path, X=values)
    elif kind == "npz packed":
        np.savez_compressed(path, X=values)
    elif kind == "csv":
        names = ",".join(f"f{j}" for j in range(values.shape[1]))
        line = ",".join(map(str, values[0]))
        path.write_text("\n".join([names, *[line] * len(values)]))
    else:
        pq.write_table(pa.table({f"f{j}": c for j, c in enumerate(values.T)}), path, row_group_size=5_000)
    return path


def test_the_short_form_of_a_report_is_its_text_of_at_most_20_lines(tmp_path: Path) -> None:
    short = ingest_arrays(X, tmp_path / "short.zarr")
    assert repr(short).splitlines() == short.lines()
    names = [f"c{j}" for j in range(30)]
    texts = {name: [f"v{i % 3}" for i in range(M)] for name in names}
    pq.write_table(pa.table({"t": X[:, 0], **texts}), tmp_path / "d.parquet")
    long = ingest(tmp_path / "d.parquet", tmp_path / "long.zarr", target="t", categorical=names)
    assert len(long.lines()) > 30
    assert len(repr(long).splitlines()) == 20
    assert repr(long).endswith(f"and {len(long.lines()) - 19} more lines, which lines() returns")
