"""Clusters that run already, waiting for workers, TLS, and each kind of cluster's own options."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import socket
import stat
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask
import psutil
import pytest
from dask.delayed import delayed
from distributed import Client, LocalCluster

from dsel.config.cluster import ClusterSection
from dsel.engine.clusters import cluster as waiting
from dsel.engine.clusters import external
from dsel.engine.clusters.cluster import check_same_software, import_extra, wait_for_workers
from dsel.engine.clusters.connect import cluster_of
from dsel.engine.clusters.local import local_cluster
from dsel.engine.clusters.slurm import job_options
from dsel.engine.clusters.tls import shared_security, site_security
from dsel.engine.dask_engine import DaskEngine
from dsel.errors import ClusterError, MissingExtraError, OptionError, OutputError
from tests.cli_runner import LIMIT, call


def section(**keys: Any) -> ClusterSection:
    return ClusterSection.model_validate(keys)


def answer(cluster: ClusterSection) -> int:
    with cluster_of(cluster).open("dsel-test") as client:
        return int(DaskEngine(client).run(delayed(sum)([20, 22])))


@pytest.fixture(scope="module")
def running() -> Iterator[Any]:
    with LocalCluster(  # type: ignore[no-untyped-call]
        n_workers=1, threads_per_worker=1, processes=False, protocol="tcp://", dashboard_address="127.0.0.1:0"
    ) as cluster:
        yield cluster


class TestASchedulerThatRuns:
    def test_by_its_address_and_it_is_left_running(self, running: Any) -> None:
        assert answer(section(address=running.scheduler_address)) == 42
        assert answer(section(address=running.scheduler_address)) == 42

    def test_by_its_file_which_may_come_later(self, running: Any, tmp_path: Path) -> None:
        path = tmp_path / "scheduler.json"
        threading.Timer(0.5, path.write_text, [json.dumps({"address": running.scheduler_address})]).start()
        assert answer(section(scheduler_file=str(path))) == 42

    def test_none_there_is_an_error_in_time(self, nobody: str, tmp_path: Path) -> None:
        with pytest.raises(ClusterError, match="No scheduler answers") as error:
            answer(section(address={"address": nobody, "wait": 0.5}))
        assert error.value.exit_code == 69
        with pytest.raises(ClusterError, match="did not appear"):
            answer(section(scheduler_file={"path": str(tmp_path / "none.json"), "wait": 0.5}))

    def test_a_file_without_an_end_is_refused_at_once(self, tmp_path: Path) -> None:
        with pytest.raises(ClusterError, match="The scheduler file /dev/zero is not a file"):
            answer(section(scheduler_file={"path": "/dev/zero", "wait": "10m"}))
        with (tmp_path / "large.json").open("w") as file:
            file.truncate(1 << 40)
        with pytest.raises(ClusterError, match="is too large for a scheduler file"):
            answer(section(scheduler_file={"path": str(tmp_path / "large.json"), "wait": "10m"}))


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address that refuses connections."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        yield f"tcp://127.0.0.1:{s.getsockname()[1]}"


@pytest.fixture
def silent() -> Iterator[str]:
    """An address that takes connections, and does not answer."""
    with socket.create_server(("127.0.0.1", 0)) as s:
        yield f"tcp://127.0.0.1:{s.getsockname()[1]}"


class TestAFileOfAnEarlierScheduler:
    """The scheduler that the file names is dead, or hangs."""

    @pytest.fixture(autouse=True)
    def _quick(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("_FIRST_ATTEMPT_SECONDS", "_ANSWER_SECONDS", "_LOOK_SECONDS"):
            monkeypatch.setattr(external, name, 0.1)

    @pytest.mark.parametrize("address", ["nobody", "silent"])
    def test_the_next_scheduler_is_found_in_it(
        self, address: str, running: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture,
        monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest,
    ) -> None:  # fmt: skip
        path, old, tried = tmp_path / "scheduler.json", request.getfixturevalue(address), list[str]()
        path.write_text(json.dumps({"address": old}))
        connect = external._client

        def attempt(address: str, timeout: float) -> Any:
            tried.append(address)
            if len(tried) == 3:  # the next scheduler starts while this one is tried
                path.write_text(json.dumps({"address": running.scheduler_address}))
            return connect(address, timeout)

        monkeypatch.setattr(external, "_client", attempt)
        with caplog.at_level(logging.INFO, "dsel"):
            assert answer(section(scheduler_file={"path": str(path), "wait": "10m"})) == 42
        assert tried[:3] == [old] * 3
        assert set(tried[3:]) == {running.scheduler_address}  # a busy machine may need several attempts
        assert caplog.text.count(f"none answers yet at {old}, the address in {path}") == 1

    @pytest.mark.parametrize("address", ["nobody", "silent"])
    def test_without_another_it_is_an_error_when_the_time_is_over(
        self, address: str, tmp_path: Path, request: pytest.FixtureRequest
    ) -> None:
        path, old = tmp_path / "scheduler.json", request.getfixturevalue(address)
        path.write_text(json.dumps({"address": old}))
        with pytest.raises(ClusterError, match=rf"No scheduler answers at {old}, the address in .*\.json") as error:
            answer(section(scheduler_file={"path": str(path), "wait": 0.5}))
        assert error.value.exit_code == 69

    def test_a_hung_scheduler_at_an_address_is_an_error_in_time(self, silent: str) -> None:
        with pytest.raises(ClusterError, match="takes the connection, but does not answer"):
            answer(section(address={"address": silent, "wait": 0.5}))


class TestWaitingForWorkers:
    def test_fewer_than_asked_are_reported_and_used(
        self, running: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with Client(running, set_as_default=False) as client, caplog.at_level(logging.INFO, "dsel"):  # type: ignore[no-untyped-call]
            wait_for_workers(client, 1, LIMIT, "here")
            monkeypatch.setattr(waiting, "_FIRST_LINE_SECONDS", 0.1)
            wait_for_workers(client, 3, 0.5, "here", lambda: "the queue is full")
        assert re.search(r"waiting for workers \(here\): 1 of 3 after \d+ s: the queue is full", caplog.text)
        assert "1 of 1 workers are ready (here)" in caplog.text
        assert "1 of 3 workers are ready (here)" in caplog.text
        assert "the job starts with them (the queue is full)" in caplog.text

    def test_none_is_an_error_with_the_sites_own_account(self) -> None:
        client = SimpleNamespace(scheduler_info=lambda n_workers: {"workers": {}})
        with pytest.raises(ClusterError, match=r"None of 2 workers .* was ready .* PENDING \(Priority\)"):
            wait_for_workers(client, 2, 0.3, "slurm", lambda: "squeue: 7 PENDING (Priority)")

    def test_workers_with_another_dsel_are_named(self, running: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(waiting, "version", lambda _: "9.9")
        with Client(running, set_as_default=False) as client, pytest.raises(ClusterError, match=r"here it is 9\.9"):  # type: ignore[no-untyped-call]
            check_same_software(client)


@pytest.mark.parametrize(
    ("keys", "module", "extra"),
    [
        ({"slurm": {"workers": 1, "memory": "1GiB"}}, "dask_jobqueue", "slurm"),
        ({"kubernetes": {"workers": 1, "memory": "1GiB", "image": "i"}}, "dask_kubernetes.operator", "kubernetes"),
        ({"gateway": {"workers": 1}}, "dask_gateway", "gateway"),
    ],
)
def test_a_missing_extra_is_named(
    keys: dict[str, Any], module: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=rf"pip install 'dsel\[{extra}\]'"):
        answer(section(**keys))


def test_slurm_without_its_commands_is_an_error_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("dask_jobqueue")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ClusterError, match="no sbatch on this machine"):
        answer(section(slurm={"workers": 1, "memory": "1GiB", "wait": 60}))


def test_slurm_that_takes_no_job_is_an_error_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("dask_jobqueue")
    for command in ("sbatch", "scancel", "squeue"):
        (tmp_path / command).write_text(f"#!/bin/sh\necho '{command}: error: Unable to contact slurm' >&2; exit 1\n")
        (tmp_path / command).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ClusterError, match=r"Slurm refuses the job of a worker: .*Unable to contact slurm"):
        answer(section(slurm={"workers": 1, "memory": "1GiB", "interface": "lo", "wait": 1}))
    assert not list(tmp_path.glob("tls-*"))


def test_a_package_that_takes_ctrl_c_for_itself_does_not_keep_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "takes_sigint.py").write_text("import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n")
    monkeypatch.syspath_prepend(tmp_path)
    before = signal.getsignal(signal.SIGINT)
    import_extra("takes_sigint", "takes-sigint", "slurm")
    assert signal.getsignal(signal.SIGINT) is before


def job_script(security: Any, folder: Path) -> str:
    pytest.importorskip("dask_jobqueue")
    from dask_jobqueue.slurm import SLURMJob

    keys = {"workers": 1, "memory": "1GiB"}
    options = job_options(section(slurm=keys).chosen, "dsel-x", folder, security)  # type: ignore[arg-type]
    for not_the_jobs in ("scheduler_options", "silence_logs"):
        del options[not_the_jobs]
    return str(SLURMJob("tls://h:1", name="w", **options).job_script())


def test_a_slurm_section_in_dask_jobqueues_words() -> None:
    pytest.importorskip("dask_jobqueue")
    keys = {"workers": 2, "memory": "2GiB", "threads": 2, "queue": "long", "account": "a1", "walltime": "03:00:00",
            "directives": ["--qos=high"], "prologue": ["module load x"], "environment": {"MODE": "it's"}}  # fmt: skip
    from dask_jobqueue.slurm import SLURMJob

    options = job_options(section(slurm=keys).chosen, "dsel-x", None, None)  # type: ignore[arg-type]
    for not_the_jobs in ("scheduler_options", "silence_logs"):
        del options[not_the_jobs]
    script = SLURMJob("tcp://h:1", name="w", **options).job_script()
    for line in ("-J dsel-x", "-p long", "-A a1", "--cpus-per-task=2", "--mem=2304M", "-t 03:00:00", "--qos=high"):
        assert f"#SBATCH {line}" in script
    assert "module load x\n" in script
    assert """export MODE='it'"'"'s'""" in script
    assert "--memory-limit 2.00GiB" in script
    assert "--no-dashboard --dashboard-address 127.0.0.1:0" in script  # else it serves its state to all interfaces


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("cat > /dev/null; echo 'sbatch: error: invalid partition specified: nowhere' >&2; exit 1", "nowhere"),
        (None, "There is no sbatch on this machine"),
    ],
)
def test_a_slurm_job_that_is_refused_is_an_error_at_once(
    script: str | None, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("dask_jobqueue")
    monkeypatch.setenv("PATH", str(tmp_path) if script is None else f"{tmp_path}:/usr/bin:/bin")
    if script is not None:
        (tmp_path / "sbatch").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "sbatch").chmod(0o755)
    keys = {"workers": 1, "memory": "1GiB", "queue": "nowhere", "security": "none"}
    with pytest.raises(ClusterError, match=message), cluster_of(section(slurm=keys)).open("dsel-x", tmp_path):
        pytest.fail("it was not refused")


class _Gateway:
    """A stand-in for dask_gateway.GatewayCluster around a LocalCluster; what it was asked for."""

    asked: dict[str, Any]
    inner: Any

    def __init__(self, **keys: Any) -> None:
        type(self).asked = keys
        self.name = "g1"

    def __enter__(self) -> _Gateway:
        return self

    def __exit__(self, *_: Any) -> None:
        type(self).asked["closed"] = True

    def adapt(self, **keys: Any) -> None:
        type(self).asked["adapt"] = keys

    def get_client(self, set_as_default: bool) -> Any:
        return Client(self.inner, set_as_default=set_as_default)  # type: ignore[no-untyped-call]


def test_a_gateway_gets_the_options_of_its_site(running: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    gateway = type("Gateway", (_Gateway,), {"inner": running})
    monkeypatch.setitem(sys.modules, "dask_gateway", SimpleNamespace(GatewayCluster=gateway))
    keys = {"address": "http://gateway", "maximum": 3, "options": {"worker_memory": 4}}
    assert answer(section(gateway=keys)) == 42
    assert gateway.asked == {
        "address": "http://gateway", "shutdown_on_close": True, "worker_memory": 4,
        "adapt": {"minimum": 1, "maximum": 3}, "closed": True,
    }  # fmt: skip


class TestTls:
    @pytest.fixture
    def certificates(self, tmp_path: Path) -> dict[str, str]:
        """Dask's own settings, with certificates made for the day."""
        from distributed import Security

        made = Security.temporary()  # type: ignore[no-untyped-call]
        files = {"ca-file": made.tls_ca_file}
        for role in ("client", "scheduler", "worker"):
            files[f"{role}.cert"] = getattr(made, f"tls_{role}_cert")
            files[f"{role}.key"] = getattr(made, f"tls_{role}_key")
        settings = {}
        for name, text in files.items():
            path = tmp_path / name
            path.write_text(text)
            settings[f"distributed.comm.tls.{name}"] = str(path)
        return settings

    def test_client_scheduler_and_workers_speak_it_where_dask_is_configured_for_it(
        self, certificates: dict[str, str]
    ) -> None:
        with dask.config.set(certificates), local_cluster(1, "600MB") as client:
            address = client.scheduler.address
            workers = list(client.scheduler_info()["workers"])
            assert address.startswith("tls://")
            assert len(workers) == 1
            assert workers[0].startswith("tls://")
            assert answer(section(address=address)) == 42
            with dask.config.set(dict.fromkeys(certificates)):  # somebody without them
                for scheme in ("tls://", "tcp://"):
                    other = address.replace("tls://", scheme)
                    with pytest.raises(ClusterError, match="No scheduler answers"):
                        answer(section(address={"address": other, "wait": 2}))

    def test_by_default_a_run_has_its_own_certificates(self) -> None:
        with local_cluster(1, "600MB") as client:
            address = client.scheduler.address
            assert address.startswith("tls://")
            assert all(worker.startswith("tls://") for worker in client.scheduler_info()["workers"])
            with local_cluster(1, "600MB", security="none") as plain:
                assert plain.scheduler.address.startswith("tcp://")
            with pytest.raises(ClusterError, match="No scheduler answers"):
                answer(section(address={"address": address.replace("tls", "tcp"), "wait": 1}))

    def test_certificates_in_files_are_their_owners_alone_and_are_removed(self, tmp_path: Path) -> None:
        (tmp_path / "tls-killed").mkdir()
        with shared_security("tls", tmp_path, "dsel-1") as security:
            (folder,) = tmp_path.iterdir()
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
            assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
            files = set(security.get_tls_config_for_role("worker").values()) - {None}
            assert {str(path) for path in folder.iterdir()} == files
            script = job_script(security, tmp_path)
            assert all(path in script for path in files)
            assert "PRIVATE KEY" not in script
        assert list(tmp_path.iterdir()) == []
        with shared_security("none", tmp_path, "dsel-1") as security:
            assert security is None
        (tmp_path / "file").touch()
        with (
            pytest.raises(OutputError, match="certificates of the run cannot be written"),
            shared_security("tls", tmp_path / "file", "dsel-1"),
        ):
            pass

    def test_the_command_writes_certificates_that_dasks_own_commands_use(self, tmp_path: Path) -> None:
        folder = tmp_path / "certificates"
        code, out, _ = call("tls", folder)
        assert code == 0
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        variables = dict(line.removeprefix("export ").split("=", 1) for line in out.splitlines())
        settings = {name.removeprefix("DASK_").lower().replace("__", "."): v for name, v in variables.items()}
        with (
            dask.config.set(settings),
            LocalCluster(  # type: ignore[no-untyped-call]
                n_workers=1, processes=False, dashboard_address="127.0.0.1:0", protocol=None, security=site_security()
            ) as cluster,
        ):
            assert cluster.scheduler_address.startswith("tls://")
            assert answer(section(address=cluster.scheduler_address)) == 42
        assert call("tls", folder)[0] == 73

    def test_what_cannot_speak_it_is_refused(self, certificates: dict[str, str]) -> None:
        pytest.importorskip("dask_kubernetes")
        with dask.config.set(certificates), pytest.raises(OptionError, match="TLS"):
            answer(section(kubernetes={"workers": 1, "memory": "1GiB", "image": "i"}))


def listening() -> set[tuple[str, int]]:
    """Where this process and its children take connections."""
    me, found = psutil.Process(), []
    for process in (me, *me.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):  # one of another test that ends now
            found += process.net_connections("tcp")
    return {(c.laddr.ip, c.laddr.port) for c in found if c.status == psutil.CONN_LISTEN}


def test_local_dashboards_listen_on_loopback_alone() -> None:
    before = listening()
    with local_cluster(1, "600MB"):
        places = listening() - before
    assert len(places) >= 3  # scheduler, its pages, worker
    assert {ip for ip, _ in places} == {"127.0.0.1"}
