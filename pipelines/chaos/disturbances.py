"""What disturbs a command, and how the command may then end."""

from __future__ import annotations

import signal
from dataclasses import dataclass

from pipelines.chaos.storms import FAULTS


@dataclass(frozen=True)
class Disturbance:
    """One kind of disturbance.

    Parameters
    ----------
    codes : tuple of int
        The exit codes that a command may then have. It may also have finished before.
    weight : float
        How often it is drawn.
    seconds : float
        Within how many seconds a command must end after it, on an idle machine.
    signal : signal.Signals, optional
        What the command is sent.
    of_cluster : bool
        Whether it disturbs the cluster in place of the command.
    of_bucket : bool
        Whether it disturbs object storage.
    """

    codes: tuple[int, ...]
    weight: float
    seconds: float = 60.0
    signal: signal.Signals | None = None
    of_cluster: bool = False
    of_bucket: bool = False


_FULL = (71, 73, 74)
DISTURBANCES = {
    "kill": Disturbance((-signal.SIGKILL,), 30, 5.0, signal.SIGKILL),
    "term": Disturbance((75,), 22, 10.0, signal.SIGTERM),
    "interrupt": Disturbance((75,), 8, 10.0, signal.SIGINT),
    "worker": Disturbance((), 16, of_cluster=True),
    "scheduler": Disturbance((69,), 10, 30.0, of_cluster=True),
    "hung scheduler": Disturbance((69,), 0.5, 40.0, of_cluster=True),  # it costs half a minute
    "full": Disturbance(_FULL, 4),
    "disk full": Disturbance(_FULL, 10),
    "stopped": Disturbance((), 8),
    "stopped worker": Disturbance((), 8, of_cluster=True),
    "second run": Disturbance((73,), 6),  # while the first one is stopped
    **{kind: Disturbance((74,), 15, of_bucket=True) for kind in FAULTS},
}
#: Bytes that are left: in one file, and on a full disk.
FILE_LIMITS = (300, 1000, 3000, 10_000, 30_000, 100_000)
DISK_LIMITS = (0, 0, 4096, 16_384, 65_536, 262_144)
