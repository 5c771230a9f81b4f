"""A folder with small stores, tables, results and files that are wrong, in which the bad inputs are given."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import dsel
from dsel.data.ingest import ingest_arrays

LABELS = list("abcdef")
X = np.random.default_rng(0).normal(size=(60, 6))
Y = X @ [3.0, 2.0, 0.0, 1.0, 0.5, 0.0]

FILES = {
    "plain.txt": "hello",
    "job.yaml": "store: data.zarr\nk: 3\nmethod: omp\n",
    "list.yaml": "- 1\n",
    "png.yaml": b"\x89PNG\xff\xfe",
    "fine.py": "value = 3\ndef f(S):\n    return 1.0\n",
    "syntax_error.py": "def f(:\n",
    "exits.py": "import sys\nsys.exit(0)\n",
    "t.csv": "a,b,y\n1,2,3\n4,5,6\n7,8,10\n",
    "text.csv": "a,b,y\n1,x,3\n4,5,6\n",
    "ragged.csv": "a,b,y\n1,2\n4,5,6\n",
    "empty.csv": "",
    "head.csv": "a,b,y\n",
    "twice.csv": "a,a,y\n1,2,3\n2,3,4\n",
    "infinite.csv": "a,b,y\n1,1e999,3\n2,3,4\n",
    "numbers.csv": "1,2,3\n2,3,4\n",
    "weights.csv": "a,b,y,w\n1,2,3,-1\n2,3,4,1\n3,3,4,1\n",
    "bad.npz": b"\0garbage", "bad.npy": b"\0garbage", "bad.parquet": b"\0garbage",
    "bad.feather": b"x", "bad.csv.gz": b"x",
    "bad.h5": b"x", "bad.h5ad": b"x", "bad.svmlight": "1 a:b\n",
}  # fmt: skip


@pytest.fixture(scope="package")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return the folder, which is the working directory while the tests of this package run."""
    root = tmp_path_factory.mktemp("bad-inputs")
    for name, content in FILES.items():
        (root / name).write_bytes(content.encode() if isinstance(content, str) else content)
    (root / "empty").mkdir()
    (root / "loop").symlink_to("loop")
    os.mkfifo(root / "pipe.yaml")
    np.savez(root / "nox.npz", Z=X)
    np.save(root / "vector.npy", np.arange(5.0))
    np.save(root / "objects.npy", np.array([object()]), allow_pickle=True)
    ingest_arrays(X, root / "data.zarr", y=Y[:, None], features=LABELS, chunks=(20, 6))
    dsel.select(root / "data.zarr", k=2, method="omp").save(root / "result")
    before = Path.cwd()
    os.chdir(root)
    yield root
    os.chdir(before)


def names(folder: Path) -> set[str]:
    """Return everything in the folder, so that a test sees what was half made."""
    return {str(path) for path in folder.rglob("*") if "__pycache__" not in path.parts}
