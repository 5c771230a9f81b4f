"""What must not be there any more once the work is done, on disk and in object storage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dsel.storage.locks import is_free
from dsel.storage.paths import AnyPath, as_path, list_names

#: Beginnings of names in the folder of a run, and ends of names next to a store.
_OF_A_RUN = (".", "cache", "objective-", "checkpoint", "passes")
_OF_A_STORE = (".ingesting", ".new")
#: In object storage the arrays of the result before stay for readers that have opened it.
_KEPT_TREES = 1


def left_behind(top: str, out: str, store: str) -> list[str]:
    """Return the paths that should not be there.

    Parameters
    ----------
    top : str
        The folder of all that was written.
    out : str
        The result, or the folder of runs.
    store : str
        The store that was written.
    """
    found = []
    for text in (top, out, f"{top}/artefacts", *(f"{out}/{name}" for name in _runs(as_path(out)))):
        found += _of_folder(as_path(text))
    for path in Path(f"{top}/tmp").glob("dsel-*") if "://" not in top else ():
        found.append(str(path))
    store_path = as_path(store)
    if store_path.exists():
        found += [f"{store}/{name}" for name in list_names(store_path) if name.startswith(".")]
    return found


def _runs(out: AnyPath) -> list[str]:
    from dsel.selection.changes.runs import run_names

    return list(run_names(out))


def _of_folder(folder: AnyPath) -> list[str]:
    names = list_names(folder)
    found = [name for name in names if name.startswith(_OF_A_RUN) or name.endswith(_OF_A_STORE)]
    found = [name for name in found if not name.startswith(".lock")]
    if not is_free(folder):
        found.append(".lock")
    trees = {name for name in names if name.startswith("selection-") and name.endswith(".zarr")}
    found += sorted(trees - {_arrays(folder)})[_KEPT_TREES:]
    return [f"{folder}/{name}" for name in found]


def _arrays(folder: AnyPath) -> Any:
    from dsel.storage.json_files import read_json

    values = read_json(folder / "selection.json")
    return values.get("arrays") if isinstance(values, dict) else None
