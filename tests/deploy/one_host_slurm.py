"""A real Slurm on this machine: its daemons as children of the test, without accounting and cgroups."""

from __future__ import annotations

import os
import random
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
MpiDefault=none
ReturnToService=2
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=1,bf_interval=1,sched_min_interval=0,batch_sched_delay=0
MailProg=/bin/true
KillWait={grace}
MessageTimeout=90
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
{nodes}
PartitionName=batch Nodes=ALL Default=YES State=UP
"""

NODES = ("n0", "n1")


def why_not() -> str | None:
    """What is missing to run Slurm here, if anything is."""
    missing = [name for name in ("slurmctld", "slurmd", "sbatch") if shutil.which(name) is None]
    if missing:
        return f"no {missing[0]} here: Debian's slurm-wlm is not installed"
    return "Slurm's daemons need root here" if os.geteuid() else None


@contextmanager
def one_host_slurm(folder: Path, cores: int = 3, grace: int = 20) -> Iterator[dict[str, str]]:
    """The environment in which sbatch, squeue, ... talk to it. grace: seconds from SIGTERM to SIGKILL."""
    host = socket.gethostname().split(".")[0]
    port, *ports = _free_ports(1 + len(NODES))
    nodes = [
        f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={p} CPUs={cores} RealMemory=4000"
        for name, p in zip(NODES, ports, strict=True)
    ]
    for name in ("state", *(f"spool-{node}" for node in NODES)):
        (folder / name).mkdir(parents=True)
    configuration = folder / "slurm.conf"
    configuration.write_text(
        CONFIGURATION.format(host=host, port=port, folder=folder, grace=grace, nodes="\n".join(nodes))
    )
    environment = {**os.environ, "SLURM_CONF": str(configuration)}
    with ExitStack() as stack:
        for command in (["slurmctld", "-D", "-c"], *(["slurmd", "-D", "-N", node] for node in NODES)):
            stack.enter_context(_daemon(command, folder / f"{command[-1]}.log", environment))
        stack.callback(subprocess.run, ["scancel", "--user=root"], env=environment)
        _until_idle(folder, environment)
        yield environment
        subprocess.run(["scancel", "--signal=KILL", "--user=root"], env=environment)
        subprocess.run(["scancel", "--user=root"], env=environment)


@contextmanager
def _daemon(command: list[str], log: Path, environment: dict[str, str]) -> Iterator[None]:
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _until_idle(folder: Path, environment: dict[str, str]) -> None:
    command = ["sinfo", "--noheader", "--states=idle", "--format=%D"]
    deadline = time.monotonic() + 200.0
    while time.monotonic() < deadline:
        found = subprocess.run(command, capture_output=True, text=True, env=environment)
        if found.stdout.strip() == str(len(NODES)):
            return
        time.sleep(0.1)
    logs = "\n".join(f"{path.name}: {path.read_text()[-1000:]}" for path in folder.glob("*.log"))
    pytest.fail(f"Slurm did not come up:\n{logs}")


def _free_ports(count: int) -> list[int]:
    """Ports below those that the system gives to processes that ask for any: nobody takes them before the daemons."""
    free: set[int] = set()
    while len(free) < count:
        with socket.socket() as tried, suppress(OSError):
            tried.bind(("127.0.0.1", random.randrange(10_000, 30_000)))
            free.add(tried.getsockname()[1])
    return list(free)
