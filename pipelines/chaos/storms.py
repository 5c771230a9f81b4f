"""Object storage that fails for all requests of a case for some seconds.

A lane writes what it wants to a file. The S3 server reads it for each request.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from pipelines.s3_faults import Kind, Request

#: The fault that each kind of storm brings, see `pipelines.s3_faults`.
FAULTS: Mapping[str, Kind] = {"5xx": "503", "partial body": "truncate", "slow body": "trickle", "hang": "hang"}
#: A storm lasts for a time between these.
_SHORTEST, _LONGEST = 1.0, 10.0
#: The variable by which a command waits for so many seconds only for an answer, in place of a minute.
_READ_SECONDS = "DSEL_CHAOS_READ_SECONDS"


@dataclass(frozen=True)
class Storms:
    """The storms of all lanes.

    Parameters
    ----------
    folder : Path
        Where the lanes write which storm there is.
    """

    folder: Path

    def begin(self, lane: str, kind: str, part: str, draw: random.Random) -> None:
        """Let the requests fail whose keys contain `part`, for some seconds."""
        self.folder.mkdir(exist_ok=True)
        until = time.time() + draw.uniform(_SHORTEST, _LONGEST)
        new = self.folder / f".{lane}"
        new.write_text(json.dumps({"kind": FAULTS[kind], "part": part, "until": until}))
        new.replace(self.folder / lane)

    def end(self, lane: str) -> None:
        """End the storm of a lane, if there is one."""
        (self.folder / lane).unlink(missing_ok=True)

    def fault(self, request: Request) -> Kind | None:
        """Return the fault of a request, if there is a storm over its key."""
        with suppress(FileNotFoundError):
            for name in os.listdir(self.folder):
                with suppress(OSError, ValueError):
                    storm = json.loads((self.folder / name).read_text())
                    if storm["part"] in request.key and time.time() < storm["until"]:
                        kind: Kind = storm["kind"]
                        return kind
        return None


def impatience(kind: str | None) -> dict[str, str]:
    """Return variables that let a command repeat requests early where they hang."""
    return {_READ_SECONDS: "2"} if kind == "hang" else {}


def obey_impatience() -> None:
    """Do what the variables of `impatience` say."""
    if seconds := os.environ.get(_READ_SECONDS):
        from dsel.storage import retries

        retries.READ_TIMEOUT = timedelta(seconds=float(seconds))
