"""TLS between the processes of one run: with the site's certificates, or with new ones for each run.

Without TLS, everybody who can reach a scheduler can run code as its owner, also on the loopback interface of a machine
with several users.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from dsel.errors import OutputError

SecurityOption = Literal["tls", "none"]

#: Folders of certificates are called so, with the name of the run at the end.
PREFIX = "tls-"
_AUTHORITY, _CERTIFICATE, _KEY = "ca.pem", "cert.pem", "key.pem"
_ROLES = ("client", "scheduler", "worker")
_PARTS = {"cert": _CERTIFICATE, "key": _KEY}


def site_security() -> Any | None:
    """Return settings that require TLS if Dask's configuration names a certificate authority, else None.

    The key is distributed.comm.tls.ca-file; the variable is DASK_DISTRIBUTED__COMM__TLS__CA_FILE.
    """
    import dask

    if not dask.config.get("distributed.comm.tls.ca-file", None):
        return None
    from distributed import Security

    return Security(require_encryption=True)  # type: ignore[no-untyped-call]


def run_security(wanted: SecurityOption) -> Any | None:
    """Return the site's settings, or else new certificates in memory, or None if no TLS is wanted."""
    site = site_security()
    if site is not None or wanted == "none":
        return site
    from distributed import Security

    return Security.temporary()  # type: ignore[no-untyped-call]


@contextmanager
def shared_security(wanted: SecurityOption, folder: Path | None, name: str) -> Iterator[Any | None]:
    """Provide the same, with new certificates in files that processes on other hosts read. They are removed at the end.

    Parameters
    ----------
    wanted : {"tls", "none"}
        What the section says.
    folder : Path, optional
        A folder that all hosts see; by default the working directory. Certificates of earlier runs in it are removed.
    name : str
        The name of the run.
    """
    site = site_security()
    if site is not None or wanted == "none":
        yield site
        return
    parent = Path.cwd() if folder is None else folder
    if folder is not None:
        for left in parent.glob(f"{PREFIX}*"):  # of a run that was killed: one run at a time has the folder
            shutil.rmtree(left, ignore_errors=True)
    place: Path | None = None
    try:
        try:
            parent.mkdir(parents=True, exist_ok=True)
            place = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{name}-", dir=parent))
            security = write_certificates(place)
        except OSError as error:
            raise OutputError(
                f"The certificates of the run cannot be written to {parent}: {error.strerror}.",
                "Make the folder writable, or choose another one with --out.",
            ) from error
        yield security
    finally:
        if place is not None:
            shutil.rmtree(place, ignore_errors=True)


def write_certificates(folder: Path) -> Any:
    """Write new certificates to an existing folder, and return settings that require TLS with them.

    Only the owner can read them.
    """
    from distributed import Security

    made = Security.temporary()  # type: ignore[no-untyped-call]
    folder.chmod(0o700)
    texts = {_AUTHORITY: made.tls_ca_file, _CERTIFICATE: made.tls_worker_cert, _KEY: made.tls_worker_key}
    place = folder.absolute()
    for name, text in texts.items():
        _write_private(folder / name, text)
    roles = {f"tls_{role}_{part}": str(place / file) for role in _ROLES for part, file in _PARTS.items()}
    return Security(require_encryption=True, tls_ca_file=str(place / _AUTHORITY), **roles)  # type: ignore[no-untyped-call]


def environment(folder: Path) -> dict[str, str]:
    """Return the environment variables that make Dask's own commands use the certificates in a folder."""
    start = "DASK_DISTRIBUTED__COMM__"
    files = {f"{role}__{part}": folder.absolute() / file for role in _ROLES for part, file in _PARTS.items()}
    files["ca_file"] = folder.absolute() / _AUTHORITY
    settings = {f"{start}TLS__{name.upper()}": str(path) for name, path in files.items()}
    return {**settings, f"{start}REQUIRE_ENCRYPTION": "true", f"{start}DEFAULT_SCHEME": "tls"}


def _write_private(path: Path, text: str) -> None:
    """Write a file that nobody else could read at any moment."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
