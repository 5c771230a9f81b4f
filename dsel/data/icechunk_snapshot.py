"""Snapshots of Icechunk repositories, which are read through xarray and stay lazy.

A snapshot never changes, so its identifier is the fingerprint of its data. A branch or tag is resolved once. A process
opens a repository once, so that an unchanged branch takes one or two requests from then on.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode

from dsel._lib.text import shorten, suggest
from dsel.data.labels import is_a
from dsel.errors import DataError, MissingExtraError, MissingInputError, OptionError
from dsel.storage.paths import ICECHUNK

#: Variables are listed down to this depth.
_DEEPEST: Final = 4
_VERSIONS: Final = ("branch", "tag", "snapshot")


@dataclass(frozen=True)
class Snapshot:
    """A snapshot of a repository.

    Parameters
    ----------
    name : str
        What messages and results call it: its URL with the identifier of the snapshot.
    identifier : str
        The identifier of the snapshot.
    group : str, optional
        The group that holds the data, by default the root.
    session : icechunk.Session
        The session that reads it.
    """

    name: str
    identifier: str
    group: str | None
    session: Any

    def dataset(self) -> Any:
        """Return the variables as an xarray Dataset of Dask arrays. Errors: DataError if there is no such group."""
        import xarray as xr

        try:
            found = xr.open_zarr(self.session.store, group=self.group, consolidated=False, chunks={})
        except (OSError, ValueError, KeyError) as error:
            raise DataError(f"{self.name} cannot be opened: it has no such group.", self._groups()) from error
        if not found.variables:
            raise DataError(f"{self.name} has no variables.", self._groups())
        return found

    def _groups(self) -> str:
        """Return a sentence that lists the groups of the snapshot that have variables."""
        import zarr

        members = zarr.open_group(self.session.store, mode="r").members(max_depth=_DEEPEST)
        names = sorted({name.rpartition("/")[0] for name, member in members if isinstance(member, zarr.Array)})
        root = "Leave group out: the variables are in the root." if "" in names else ""
        groups = f"Name one of its groups with group=: {shorten(filter(None, names), 8)}." if any(names) else ""
        return " ".join(filter(None, [root, groups])) or "It has no variables in any group."

    def digest(self, *chosen: Any) -> str | None:
        """Return the fingerprint of the data that names choose; None if data in memory are among them."""
        named = all(one is None or isinstance(one, str | int | bool | list | tuple) for one in chosen)
        return f"icechunk:{self.identifier}:{self.group or ''}:{chosen!r}" if named else None


def is_snapshot(data: Any) -> bool:
    """Return whether `data` is an ``icechunk://`` URL or a session of Icechunk."""
    return (isinstance(data, str) and data.startswith(ICECHUNK)) or is_a(data, "icechunk", "Session")


def open_snapshot(data: Any) -> Snapshot:
    """Return the snapshot of a URL or a session.

    Parameters
    ----------
    data : str or icechunk.Session
        A session, or ``icechunk://PLACE`` with ``?branch=``, ``?tag=`` or ``?snapshot=`` (by default the branch main),
        and ``group=``. The place is a local folder, or a URL such as ``s3://bucket/prefix``.

    Returns
    -------
    Snapshot
        The snapshot that the session reads, or that the branch or tag names now.

    Raises
    ------
    OptionError
        If the URL cannot be read, or a session has changes that are not committed.
    MissingInputError
        If there is no such repository, branch, tag or snapshot.
    MissingExtraError
        If icechunk is not installed.
    """
    if not isinstance(data, str):
        if data.has_uncommitted_changes:
            raise OptionError("The session of Icechunk has changes that are not committed.", "Commit them first.")
        return Snapshot(f"{ICECHUNK}@{data.snapshot_id}", str(data.snapshot_id), None, data)
    try:
        import icechunk
    except ImportError as error:
        raise MissingExtraError(
            f"{ICECHUNK} needs icechunk, which is not installed.", "pip install 'dsel[icechunk]'"
        ) from error
    place, _, query = data.removeprefix(ICECHUNK).partition("?")
    options = dict(parse_qsl(query, keep_blank_values=True))
    given = [name for name in _VERSIONS if name in options]
    if unknown := options.keys() - {*_VERSIONS, "group"}:
        name = sorted(unknown)[0]
        raise OptionError(f"{data}: {name} is unknown.", suggest(name, [*_VERSIONS, "group"]))
    if len(given) > 1:
        raise OptionError(f"{data} names a {' and a '.join(given)}.", "Name one of them.")
    version: dict[str, Any] = {"snapshot_id" if name == "snapshot" else name: options[name] for name in given} or {
        "branch": "main"
    }
    try:
        session = _session(icechunk, place, version)
    except icechunk.IcechunkError as error:
        what = str(error).strip().splitlines()[0].removeprefix("x ").rstrip(".")
        raise MissingInputError(
            f"{data} cannot be opened: {what}.", "Check the path, and the branch, tag or snapshot."
        ) from error
    recorded = {"snapshot": str(session.snapshot_id), **{name: options[name] for name in ("group",) if name in options}}
    return Snapshot(f"{ICECHUNK}{place}?{urlencode(recorded)}", str(session.snapshot_id), options.get("group"), session)


#: Repositories that this process has opened, by their place and the variables of the environment that it depends on.
_opened: dict[tuple[str | None, ...], Any] = {}
_VARIABLES: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE")


def _session(icechunk: Any, place: str, version: dict[str, Any]) -> Any:
    """Return a session that reads a version of a repository. One that was opened before is opened again if it fails."""
    key = (place, *map(os.environ.get, (*_VARIABLES, "AWS_ACCESS_KEY_ID")))
    storage = _storage(icechunk, place)  # it makes no request, and says if a folder does not exist
    if key in _opened:
        try:
            return _opened[key].readonly_session(**version)
        except icechunk.IcechunkError:
            del _opened[key]
    _opened[key] = icechunk.Repository.open(storage)
    return _opened[key].readonly_session(**version)


def _storage(icechunk: Any, place: str) -> Any:
    """Return the storage of a repository."""
    scheme, mark, rest = place.partition("://")
    if not mark:
        folder = os.path.expanduser(place)
        if not os.path.isdir(folder):  # icechunk would make it
            raise MissingInputError(f"There is no Icechunk repository {folder}.", "Check the path.")
        return icechunk.local_filesystem_storage(folder)
    bucket, _, prefix = rest.partition("/")
    if scheme == "s3":
        endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        local: dict[str, Any] = {"endpoint_url": endpoint, "force_path_style": True, "allow_http": True}
        region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        return icechunk.s3_storage(
            bucket=bucket, prefix=prefix or None, region=region, from_env=True, **(local if endpoint else {})
        )
    if scheme == "gs":
        return icechunk.gcs_storage(bucket=bucket, prefix=prefix or None, from_env=True)
    raise OptionError(f"{ICECHUNK}{scheme}:// is not supported.", "Use a local path, s3:// or gs://.")
