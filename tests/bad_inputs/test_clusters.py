"""Clusters that a job cannot reach: a listed error, and no traceback of another package."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cli_runner import LIMIT, start

JOB = "store: data.zarr\nk: 2\nmethod: forward\nout: found\ncluster: "


def test_kubernetes_without_credentials(folder: Path) -> None:
    pytest.importorskip("dask_kubernetes")
    (folder / "pods.yaml").write_text(f"{JOB}{{kubernetes: {{workers: 1, memory: 1GiB, image: x, wait: 5}}}}\n")
    outside = {name: value for name, value in os.environ.items() if not name.startswith("KUBERNETES")}
    process = start("run", "pods.yaml", env={**outside, "KUBECONFIG": str(folder / "none"), "HOME": str(folder)})
    _, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 69, err
    assert "The DaskCluster" in err
    assert "Traceback" not in err
