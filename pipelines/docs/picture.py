"""The picture on the first page: the front of the demo's data, compared with forward selection."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory


def draw_front(path: Path) -> None:
    """Select from the demo's data by POSS, and draw its front with the certificate of the chosen size."""
    import matplotlib as mpl

    mpl.use("Agg")
    import dsel
    from dsel.data.ingest import ingest

    with TemporaryDirectory() as folder:
        store = Path(folder) / "sonar.zarr"
        ingest(str(files("dsel") / "examples" / "sonar.csv"), store, target=["rock"], chunks=(64, 60))
        selection = dsel.select(store, k=8, seed=2)
        axes = selection.plot.front()
        axes.figure.set_size_inches(6.4, 3.6)
        axes.figure.savefig(path, dpi=120, bbox_inches="tight")
