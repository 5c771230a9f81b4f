"""Make the parts of the report that are not saved yet, each saved as soon as it is made."""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from shutil import rmtree

from pydantic import BaseModel, ConfigDict, ValidationError

from dsel._lib.versions import versions
from pipelines.papers.report.model import Content
from pipelines.papers.report.settings import Part, Settings
from pipelines.processes import OutOfTimeError


class Made(BaseModel):
    """A part with what is known about how it was made. content: None if it failed. error: why it failed."""

    model_config = ConfigDict(frozen=True, ser_json_inf_nan="constants")

    name: str
    quick: bool
    seconds: float
    made: str
    versions: dict[str, str]
    content: Content | None = None
    error: str = ""


def make_parts(
    parts: Sequence[Part], settings: Settings, again: Sequence[str], tell: Callable[[str], None],
    seconds: float = math.inf,
) -> dict[str, Made]:  # fmt: skip
    """Return the parts by name.

    Parts that are saved with the same `quick` are read, except those in `again`. If `again` names any, the others are
    only read, not made. A part that fails is not saved, and the next run tries it again. No part and no task of a part
    begins after `seconds`; the next call continues.
    """
    found: dict[str, Made] = {}
    settings = replace(settings, until=min(settings.until, time.monotonic() + seconds))
    for part in parts:
        saved = None if part.name in again else read_part(settings, part.name)
        if saved is not None:
            found[part.name] = saved
            tell(f"{part.name}: saved {saved.made}")
        elif again and part.name not in again:
            continue
        elif time.monotonic() >= settings.until or (made := _make(part, settings)) is None:
            tell(f"{part.name}: left for the next call")
        else:
            found[part.name] = made
            tell(f"{part.name}: {found[part.name].error or 'made'}, {found[part.name].seconds:.0f} s")
    return found


def _file(settings: Settings, name: str) -> Path:
    return settings.folder / "parts" / f"{name}.json"


def read_part(settings: Settings, name: str) -> Made | None:
    """Return a saved part, or None if there is none that fits."""
    try:
        made = Made.model_validate_json(_file(settings, name).read_text())
    except (FileNotFoundError, ValidationError):  # a part of another version is made again
        return None
    return made if made.quick == settings.quick else None


def _make(part: Part, settings: Settings) -> Made | None:
    """Make a part and save it. None if the time is over before it is finished."""
    start = time.monotonic()
    content, error = None, ""
    try:
        content = part.make(settings)
    except OutOfTimeError:
        return None
    except Exception as failure:  # one part must not lose the others
        traceback.print_exc()
        error = f"{type(failure).__name__}: {failure}"
    made = Made(
        name=part.name, quick=settings.quick, seconds=time.monotonic() - start,
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"), versions=versions(), content=content, error=error,
    )  # fmt: skip
    if content is not None:
        path = _file(settings, part.name)
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        partial.write_text(made.model_dump_json(indent=1))
        partial.replace(path)
        rmtree(settings.unfinished, ignore_errors=True)
    return made
