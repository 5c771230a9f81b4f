"""File formats of other packages: a package on the path lists one under the entry-point group dsel.formats."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from dsel._lib import plugins
from dsel.data.formats.registry import FORMATS
from dsel.data.formats.source import OPTIONS
from dsel.data.ingest import ingest
from dsel.data.store.reader import open_store
from dsel.errors import MissingExtraError, MissingInputError, OptionError

Install = Callable[..., None]

TEXT_FORMAT = """
import numpy as np
from dsel.data.formats.arrays import ArraySource
from dsel.data.formats.source import Format

def open_text(path, options):
    with path.open(encoding="utf-8") as file:
        values = np.loadtxt(file, ndmin=2)
    w = None if options.weight is None else values[:, int(options.weight)]
    return ArraySource(values, values[:, :1] * 2, weight=w, name=path.name, files=[path], dtype=options.dtype)

FORMAT = Format("text", (".txt", ".table.txt"), open_text, frozenset(["weight"]), "Write X only.")
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Write a package with a module and entry points, as pip would, and put it on the path."""
    site = tmp_path / "site"
    monkeypatch.syspath_prepend(str(site))

    def write(package: str, code: str, name: str = "text", value: str = "FORMAT") -> None:
        info = site / f"{package}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[dsel.formats]\n{name} = {package}:{value}\n")
        (site / f"{package}.py").write_text(code)
        plugins._installed.cache_clear()

    yield write
    plugins._installed.cache_clear()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    np.savetxt(tmp_path / "d.txt", np.arange(12.0).reshape(4, 3))
    return tmp_path / "d.txt"


def test_a_format_of_another_package_is_read(install: Install, file: Path, tmp_path: Path) -> None:
    install("plug_read", TEXT_FORMAT)
    ingest(file, tmp_path / "s.zarr", weight=2, dtype="float32")
    store = open_store(tmp_path / "s.zarr")
    assert store.x.read(0, 4).tolist() == np.arange(12.0).reshape(4, 3).tolist()
    assert store.dtype == np.float32
    assert store.y is not None
    assert store.y.read(0, 4)[:, 0].tolist() == [0.0, 6.0, 12.0, 18.0]
    assert store.has_weight
    assert "text" in FORMATS


def test_an_interrupted_ingest_of_it_continues(install: Install, file: Path, tmp_path: Path) -> None:
    install("plug_continue", TEXT_FORMAT)

    def stop(done: int, rows: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ingest(file, tmp_path / "s.zarr", chunks=(1, 3), progress=stop)
    assert ingest(file, tmp_path / "s.zarr", chunks=(1, 3)).resumed_rows == 2
    assert open_store(tmp_path / "s.zarr").x.read(0, 4).sum() == 66.0


def test_an_option_that_it_does_not_take_is_refused(install: Install, file: Path, tmp_path: Path) -> None:
    install("plug_options", TEXT_FORMAT)
    with pytest.raises(OptionError, match=r"files of format text do not take the option target\. Write X only"):
        ingest(file, tmp_path / "s.zarr", target=["a"])


def test_an_unknown_suffix_lists_the_installed_formats(install: Install, tmp_path: Path) -> None:
    (tmp_path / "d.xlsx").touch()
    with pytest.raises(MissingInputError, match=r"'.xlsx'.*csv \(\.csv\).*parquet \(\.parquet, \.pq\)"):
        ingest(tmp_path / "d.xlsx", tmp_path / "s.zarr")
    install("plug_list", TEXT_FORMAT)
    with pytest.raises(MissingInputError, match=r"text \(\.txt, \.table\.txt\)"):
        ingest(tmp_path / "d.xlsx", tmp_path / "s.zarr")


@pytest.mark.parametrize(
    ("code", "name", "value", "error", "message"),
    [
        ("import no_such_module", "text", "FORMAT", MissingExtraError, "plug_bad.*cannot be imported: ModuleNotFound"),
        ("FORMAT = 3", "text", "FORMAT", OptionError, r"is not a dsel\.data\.formats\.source\.Format"),
        (TEXT_FORMAT, "texts", "FORMAT", OptionError, "calls itself 'text'"),
        (TEXT_FORMAT, "csv", "FORMAT", OptionError, "dsel and plug_bad have a format of the same name, 'csv'"),
    ],
)
def test_a_package_that_is_wrong_is_named(
    install: Install, file: Path, tmp_path: Path, code: str, name: str, value: str, error: type[Exception],
    message: str, request: pytest.FixtureRequest,
) -> None:  # fmt: skip
    package = f"plug_bad{request.node.callspec.indices['code']}"
    install(package, code, name, value)
    with pytest.raises(error, match=message.replace("plug_bad", package)):
        ingest(file, tmp_path / "s.zarr") if name != "csv" else FORMATS["csv"]


def test_the_page_says_which_sources_take_which_options() -> None:
    guide = Path(__file__).parents[2] / "deploy/docs/how-to/ingest.md"
    page = guide.read_text().partition("## Options of sources")[2].partition("## Tables")[0]
    rows = [line.strip("|").split("|") for line in page.splitlines() if line.startswith("| `")]
    said = {name: kinds for names, kinds in rows for name in re.findall("`([a-z]+)`", names)}
    said["weight"] = said["weight"].replace("those", said["target"])
    for name in OPTIONS:
        takes = {kind for kind, found in FORMATS.own.items() if name in found.takes}
        assert set(re.findall("[a-z0-9]+", said[name])) & set(FORMATS.own) == takes, name
