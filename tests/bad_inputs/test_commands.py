"""Bad command lines, and files that commands cannot use: the message, the exit code, and nothing half made."""

# ruff: noqa: E501

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.bad_inputs.conftest import names
from tests.cli_runner import call

USAGE, OPTION, DATA, MISSING, OUTPUT = 2, 64, 65, 66, 73
NO_RESULT = (MISSING, "There is no selection.json in", "folder that a run wrote to")
NO_JOB = (MISSING, "holds no job", "Name the folder that dsel run")
FROM_PYTHON = (
    MISSING,
    "holds no job: its selection was saved from Python",
    r'dsel.certify\(dsel.open_selection\("result"\), ".*/data.zarr"\)\. .* run a job: dsel init STORE',
)
KNOWN = "Known: a, b, y"

COMMANDS: list[tuple[list[str], int, str, str]] = [
    (["shwo"], USAGE, "No such command 'shwo'", "See dsel --help"),
    (["run"], USAGE, "Missing argument 'job'", "See dsel run --help"),
    (["run", "job.yaml", "extra"], USAGE, "unexpected extra argument", "See dsel run --help"),
    (["show", "--jsn", "x"], USAGE, "No such option", "--json"),
    (["run", "job.yaml", "--log-format", "xml"], USAGE, "'--log-format'.* 'xml'", "'text', 'json'"),
    (["run", "none.yaml"], MISSING, "job file none.yaml cannot be read", "dsel init"),
    (["run", "empty"], MISSING, "job file empty is not a file", "Name a YAML file"),
    (["run", "pipe.yaml"], MISSING, "job file pipe.yaml is not a file", "Name a YAML file"),
    (["run", "loop"], MISSING, "job file loop cannot be read: .*links", "Check the path"),
    (["run", "list.yaml"], OPTION, "list.yaml has no keys", "at least store and k"),
    (["run", "png.yaml"], OPTION, "png.yaml is not a text file", "in UTF-8"),
    (["run", "job.yaml", "--out", "plain.txt"], OUTPUT, "out .*plain.txt.* is a file", "Choose another"),
    (["run", "job.yaml", "--out", "s3://me:pw@b/x"], OPTION, "s3:// URL contains credentials", "from the environment"),
    (["run", "job.yaml", "--out", ""], OPTION, "path is empty", "Give a path"),
    (["plan", "job.yaml", "--out", "plain.txt/x"], OUTPUT, "out .*plain.txt is a file", "Choose another"),
    (["plan", "job.yaml", "--out", "/proc/none/x"], OUTPUT, "result folder /proc/none/x cannot be", "another --out"),
    (["run", "job.yaml", "--out", "/proc/none/x"], OUTPUT, "result folder /proc/none/x cannot be", "another --out"),
    (["plan", "job.yaml", "--k", "x"], OPTION, "'k' is 'x'", "a whole number, or auto"),
    (["plan", "job.yaml", "--k", "99"], OPTION, "k is 99, and X has 6 columns", "from 1 to 6"),
    (["plan", "job.yaml", "--max-k", "0"], USAGE, "'--max-k'", "greater than or equal to 1"),
    (["plan", "job.yaml", "--cluster", "none.yaml"], MISSING, "cluster file none.yaml cannot be read", "Check the path"),
    (["plan", "job.yaml", "--cluster", "job.yaml"], OPTION, "job.yaml does not have one key, cluster", "as in a job"),
    (["info", "none.zarr"], MISSING, "no store .*none.zarr", "dsel ingest"),
    (["info", "plain.txt"], MISSING, "plain.txt is not a Zarr store", "Check the path"),
    (["info", "empty"], MISSING, "empty is not a Zarr store", "Check the path"),
    (["info", "loop"], MISSING, "no store .*loop", "Check the path"),
    (["info", ""], OPTION, "path is empty", "Give a path"),
    (["info", "x" * 4100], OPTION, "path 'xxx.* is too long", "Give a path"),
    (["info", "s3://"], OPTION, "does not name a path in a bucket", "s3://bucket/path"),
    (["info", "s3:/bucket/x"], OPTION, "s3: is followed by one slash", "s3://bucket/path"),
    (["show", "empty"], *NO_RESULT),
    (["show", "none"], *NO_RESULT),
    (["show", "loop"], *NO_RESULT),
    (["export", "none"], *NO_RESULT),
    (["report", "none"], *NO_RESULT),
    (["predict", "none", "data.zarr", "p"], *NO_RESULT),
    (["compare", "result", "empty"], *NO_RESULT),
    (["verify", "empty"], *NO_RESULT),
    (["resume", "empty"], *NO_JOB),
    (["certify", "result"], *FROM_PYTHON),
    (["verify", "result"], *FROM_PYTHON),
    (["status", "none"], *NO_JOB),
    (["certify", "result", "--time", "soon"], OPTION, "'soon' is not a duration", "90s, 10m"),
    (["certify", "result", "--nodes", "0"], USAGE, "'--nodes'", "greater than or equal to 1"),
    (["certify", "result", "--workers", "0"], USAGE, "'--workers'", "greater than or equal to 1"),
    (["export", "result", "--format", "doc"], USAGE, "'--format': 'doc' is not", "'labels', 'csv', 'json'"),
    (["predict", "result", "none.zarr", "p"], MISSING, "no store .*none.zarr", "Check the path"),
    (["predict", "result", "data.zarr", "result"], OUTPUT, "result exists already", "another name"),
    (["predict", "result", "data.zarr", "plain.txt/p"], OUTPUT, "no folder .*plain.txt", "Create it"),
    (["init", "none.zarr", "--out", "n.yaml"], MISSING, "no store .*none.zarr", "dsel ingest"),
    (["init", "data.zarr", "--out", "n.yaml", "--k", "99"], OPTION, "k is 99", "from 1 to 6"),
    (["init", "data.zarr", "--out", "n.yaml", "--method", "pos"], OPTION, "no method 'pos'", "Did you mean 'poss'"),
    (["init", "data.zarr", "--out", "job.yaml"], OUTPUT, "job.yaml exists already", "--overwrite"),
    (["init", "data.zarr", "--out", "none/n.yaml"], OUTPUT, "none/n.yaml cannot be written", "another --out"),
    (["generate", "data.zarr"], OUTPUT, "data.zarr exists already", "another name"),
    (["generate", "g.zarr", "--samples", "0"], USAGE, "'--samples'", "greater than or equal to 1"),
    (["generate", "plain.txt/g.zarr"], OUTPUT, "no folder .*plain.txt", "Create it"),
    (["stability", "data.zarr"], USAGE, "Missing option '--k'", "See dsel stability --help"),
    (["stability", "none.zarr", "--k", "3"], MISSING, "no store .*none.zarr", "Check the path"),
    (["stability", "data.zarr", "--k", "99"], OPTION, "k is 99", "from 1 to 6"),
    (["stability", "none.zarr", "--k", "3", "--threshold", "75"], OPTION, "threshold is 75", "such as 0.75"),
    (["stability", "data.zarr", "--k", "3", "--samples", "3"], OPTION, "samples is 3", "even for pairs"),
    (["warm", "--method", "nope"], OPTION, "no method 'nope'", "Known: poss"),
    (["tls", "empty"], OUTPUT, "folder empty cannot be created: File exists", "Name a new folder"),
    (["tls", "none/x"], OUTPUT, "folder none/x cannot be created", "Name a new folder"),
    (["demo", "--out", "plain.txt/x"], OUTPUT, "plain.txt/x cannot be created", "another --out"),
]  # fmt: skip

#: The source, and options of `dsel ingest`.
TABLES: list[tuple[list[str], int, str, str]] = [
    (["none.csv"], MISSING, "no file none.csv", "Check the path"),
    (["plain.txt"], MISSING, "format of plain.txt", "Installed formats: npy"),
    (["empty"], MISSING, "format of the folder empty", "Installed formats"),
    (["s3://me:pw@b/x.csv"], OPTION, "s3:// URL contains credentials", "from the environment"),
    (["text.csv"], DATA, "text.csv: row 0, column 'b': 'x' is not a number", "under categorical.*The first row of data is row 0"),
    (["ragged.csv"], DATA, "ragged.csv: line 2 has 2 fields and the header has 3", "Correct these lines"),
    (["empty.csv"], DATA, "empty.csv has no header line", "column names"),
    (["head.csv"], DATA, "head.csv: X has shape 0 x 3", "at least one row"),
    (["twice.csv"], DATA, r"twice.csv: .*'a' \(2 times\)", "unique name"),
    (["infinite.csv"], DATA, "infinite.csv: row 0, column 'b': the value inf", "Correct it"),
    (["numbers.csv"], DATA, "first line of numbers.csv has numbers", "--no-header"),
    (["weights.csv", "--weight", "w"], DATA, "weights.csv: row 0, column 'w': the value -1.0 is negative", ">= 0"),
    (["bad.npz"], DATA, "bad.npz is not an .npz archive", "numpy.savez"),
    (["nox.npz"], DATA, "nox.npz has no array X; it has Z", "numpy.savez"),
    (["bad.npy"], DATA, "bad.npy is not an array", "numpy.save"),
    (["vector.npy"], DATA, r"vector.npy has shape \(5,\)", "two dimensions"),
    (["objects.npy"], DATA, "objects.npy has dtype object", "Encode them"),
    (["bad.parquet"], DATA, "bad.parquet cannot be read as a Parquet file", "Write the file again"),
    (["bad.feather"], DATA, "bad.feather cannot be read as an Arrow file", "Write it again"),
    (["bad.csv.gz"], DATA, "bad.csv.gz cannot be read as a file of format csv", "Check the file"),
    (["bad.h5"], DATA, "bad.h5 cannot be read as an HDF5 file", "write the file again"),
    (["bad.h5ad"], DATA, "bad.h5ad cannot be read as an HDF5 file", "write the file again"),
    (["bad.svmlight"], DATA, "bad.svmlight cannot be read in bytes 0 to 6", "Each line is"),
    (["t.csv", "--target", "nope"], OPTION, "target='nope': t.csv", KNOWN),
    (["t.csv", "--index", "nope"], OPTION, "index='nope': t.csv", KNOWN),
    (["t.csv", "--weight", "nope"], OPTION, "weight='nope': t.csv", KNOWN),
    (["t.csv", "--drop", "nope"], OPTION, "drop='nope': t.csv", KNOWN),
    (["t.csv", "--categorical", "nope"], OPTION, "categorical='nope': t.csv", KNOWN),
    (["t.csv", "--target", "a", "--target", "a"], OPTION, "t.csv: column 'a' is given twice", "Give it once"),
    (["t.csv", "--target", "a", "--target", "b", "--target", "y"], DATA, "t.csv has no column left for X", "Name fewer"),
    (["t.csv", "--memory", "lots"], OPTION, "memory is 'lots'", "1GiB or 800MB"),
    (["t.csv", "--memory", "1"], OPTION, "memory is '1'", "1GiB or 800MB"),
    (["t.csv", "--memory", "-1GB"], OPTION, "memory is '-1GB'", "1GiB or 800MB"),
    (["t.csv", "--separator", "||"], OPTION, "separator='||' is not one character".replace("|", r"\|"), "such as ';'"),
    (["t.csv", "--decimal", "::"], OPTION, "decimal='::' is not one character", "Give one"),
    (["t.csv", "--dtype", "int3"], OPTION, "dtype='int3' is not a numeric dtype", "float32"),
    (["t.csv", "--compression", "lzma"], OPTION, "compression='lzma' is not known", "none, zstd, lz4"),
    (["t.csv", "--missing", "drop"], USAGE, "'--missing'.* 'drop'", "'keep', 'refuse', 'rows', 'mean'"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "code", "what", "remedy"),
    [*COMMANDS, *((["ingest", source, "o.zarr", *rest], *others) for (source, *rest), *others in TABLES)],
    ids=lambda value: " ".join(value)[:50] if isinstance(value, list) else "",
)
def test_a_bad_command(folder: Path, words: list[str], code: int, what: str, remedy: str) -> None:
    before = names(folder)
    ended, out, err = call(*words)
    said = " ".join(err.split())
    assert (ended, out) == (code, ""), said
    assert re.search(what, said), said
    assert re.search(remedy, said), said
    assert "Traceback" not in said
    assert names(folder) == before


def test_a_store_and_a_folder_that_exist_are_not_touched(folder: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in (folder / "data.zarr").rglob("*")}
    ended, _, err = call("ingest", "t.csv", "data.zarr")
    assert ended == OUTPUT
    assert "data.zarr exists already" in err
    assert "Choose another name" in err
    assert {path: path.stat().st_mtime_ns for path in (folder / "data.zarr").rglob("*")} == before


def test_the_table_of_a_stability_selection_is_printed_where_no_threshold_keeps_the_limit(folder: Path) -> None:
    ended, out, err = call(
        "stability", "data.zarr", "--k", "3", "--samples", "4", "--parts", "4", "--max-errors", "1e-9"
    )
    assert ended == OPTION
    assert "chosen on 75% or more" in out
    assert "choose fewer columns" in err
