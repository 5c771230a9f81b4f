"""The demo: a job on the example data set that dsel includes."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from dsel.config.cluster import ClusterSection, LocalSection
from dsel.config.job import JobFile
from dsel.errors import OutputError
from dsel.jobs.reporting import Reporter
from dsel.jobs.runner import run_job
from dsel.selection.render import render
from dsel.selection.result import Selection

#: The best R^2 of any 8 of the 60 columns, known from exhaustive search.
OPTIMUM = 0.438258

K = 8


def run_demo(out: Path) -> str:
    """Ingest, select by forward selection and by POSS on a local cluster, and return the comparison as text."""
    from dsel.data.ingest import ingest

    store = out / "sonar.zarr"
    if not store.exists():
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(
                f"The folder {out} cannot be created: {error.strerror}.", "Choose another --out."
            ) from error
        with_source = files("dsel") / "examples" / "sonar.csv"
        ingest(str(with_source), store, target=["rock"], chunks=(64, 60))
    reporter = Reporter.for_terminal
    forward = run_job(_job(store, out / "forward", "forward"), reporter())
    poss = run_job(_job(store, out / "poss", "poss"), reporter())
    return "\n".join([render(poss), _comparison(forward, poss), _next_steps(out)])


def _job(store: Path, out: Path, method: str) -> JobFile:
    local = LocalSection(workers=2)
    return JobFile(
        store=store.absolute(), k=K, method=method, seed=2, out=out.absolute(), cluster=ClusterSection(local=local)
    )


def _comparison(forward: Selection, poss: Selection) -> str:
    return (
        f"Share of the variance of rock/mine explained by {K} of 60 frequency bands:\n"
        f"  forward selection {forward.r2:.6f}\n"
        f"  POSS              {poss.r2:.6f}\n"
        f"  best possible     {OPTIMUM:.6f} (known from exhaustive search)\n"
    )


def _next_steps(out: Path) -> str:
    return f"Saved in {out}: sonar.zarr, forward, poss. Print it again with: dsel show {out / 'poss'}"
