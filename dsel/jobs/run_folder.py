"""What stands in the folder of a run, and what its small files say.

job.json (what was asked, of which data), checkpoint.json (while the search runs), run.log, journal.jsonl (of searches
on workers: dsel.search.parallel.journal), and at the end selection.json with selection.zarr.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from pydantic import ValidationError

from dsel.config.job import JobFile
from dsel.errors import MissingInputError
from dsel.storage.json_files import read_json
from dsel.storage.paths import Place

JOB, CHECKPOINT, JOURNAL, LOG = "job.json", "checkpoint.json", "journal.jsonl", "run.log"

CHECKPOINT_FORMAT = 1


def described(folder: Place) -> dict[str, Any] | None:
    """What job.json says, or None where it is not there or not whole."""
    value = read_json(folder / JOB)
    identity = value.get("identity") if isinstance(value, dict) else None
    return value if isinstance(identity, dict) and isinstance(identity.get("job"), dict) else None


def job_of(folder: Place) -> tuple[dict[str, Any], JobFile]:
    """What the job.json of a folder says, and the job. Errors: MissingInputError where there is none."""
    about = described(folder)
    if about is not None:
        with suppress(ValidationError):
            return about, JobFile.model_validate(about.get("job")).model_copy(update={"out": folder.absolute()})
    raise MissingInputError(
        f"{folder} holds no job: there is no whole {JOB}.", "Name the folder that dsel run wrote to, or use dsel run."
    )


def head(identity: dict[str, Any]) -> dict[str, Any]:
    """What a checkpoint says before the state: of which job it is."""
    return {"format": CHECKPOINT_FORMAT, "identity": identity}


def read_checkpoint(folder: Place, head: dict[str, Any]) -> dict[str, Any] | None:
    """The state saved by the job with this head, if it is there and whole."""
    saved = read_json(folder / CHECKPOINT)
    if not isinstance(saved, dict) or {name: saved.get(name) for name in head} != head:
        return None
    state = saved.get("state")
    return state if isinstance(state, dict) and state else None
