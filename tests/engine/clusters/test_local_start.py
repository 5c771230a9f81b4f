"""Workers of this machine that do not start or stop: on a full disk the error says so, whatever the worker reports."""

from __future__ import annotations

import errno
import logging
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import distributed
import pytest

from dsel.engine.clusters.cluster import close
from dsel.engine.clusters.local import local_cluster
from dsel.errors import CapacityError, ClusterError, DselError


def error_of_start(monkeypatch: pytest.MonkeyPatch, error: Exception, cause: Exception | None = None) -> DselError:
    """Return the error of a cluster whose start raises an error."""

    def start(*args: Any, **options: Any) -> Any:
        raise error from cause

    monkeypatch.setattr(distributed, "LocalCluster", start)
    with pytest.raises(DselError) as found, local_cluster(1, "600MB", security="none"):
        pytest.fail("it started")
    return found.value


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_the_cause_of_what_distributed_raises(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    full = OSError(number, "No space left on device")
    error = error_of_start(monkeypatch, RuntimeError("Cluster failed to start"), full)
    assert isinstance(error, CapacityError)
    assert error.exit_code == 71
    assert tempfile.gettempdir() in error.what


def test_a_worker_that_only_dies_on_a_full_disk_says_nothing_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: Any, **options: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    error = error_of_start(monkeypatch, RuntimeError("Worker failed to start"))
    assert isinstance(error, CapacityError)
    assert str(tmp_path) in error.what


def test_any_other_failure_is_one_of_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    error = error_of_start(monkeypatch, RuntimeError("Nanny failed to start"), PermissionError(errno.EACCES, "no"))
    assert isinstance(error, ClusterError)
    assert error.exit_code == 69
    assert "Nanny failed to start" in error.what


@pytest.mark.parametrize("error", [KeyError("tcp://127.0.0.1:1"), AssertionError()])
def test_an_error_of_the_cluster_as_it_stops_does_not_hide_the_result(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = SimpleNamespace(close=Mock(side_effect=error))
    with caplog.at_level(logging.DEBUG, "dsel"):
        close(cluster)
    assert type(error).__name__ in caplog.text
