"""The demo: a job on the example data set that dsel includes."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from dsel._lib.kernel_loading import compiling_in_background
from dsel.config.cluster import ClusterSection, LocalSection
from dsel.config.job import JobFile
from dsel.jobs.locations import job_dataset, statistics_cache
from dsel.jobs.reporting import Reporter, output_errors
from dsel.jobs.runner import run_job
from dsel.objective.subset_state import INSERTION_KERNELS
from dsel.search.pareto.compiled import pareto_kernels
from dsel.selection.context import RunContext
from dsel.selection.pipeline import run_selection
from dsel.selection.render import render
from dsel.selection.result import Selection

#: The best R^2 of any 8 of the 60 columns, known from exhaustive search.
OPTIMUM = 0.438258

K = 8


def run_demo(out: Path) -> dict[str, Selection]:
    """Ingest, run a POSS job on a local cluster, and return its selection and that of forward selection, by method.

    Forward selection uses the statistics that the job has saved. On first use, another process compiles the searches
    meanwhile.
    """
    pareto, unused = pareto_kernels(exchange_every=1)
    with compiling_in_background(*INSERTION_KERNELS, *pareto, without=unused):
        job = JobFile(
            store=_store(out).absolute(), k=K, method="poss", seed=2, out=(out / "poss").absolute(),
            cluster=ClusterSection(local=LocalSection(workers=1)),
        )  # fmt: skip
        poss = run_job(job, Reporter.for_terminal())
    request = job.request().model_copy(update={"method": "forward"})
    forward = run_selection(job_dataset(job), request, RunContext(cache=statistics_cache(job)))
    forward.save(out / "forward", overwrite=True)
    return {"forward": forward, "poss": poss}


def _store(out: Path) -> Path:
    """Return the store of the example data, which is written unless it is there."""
    from dsel.data.ingest import ingest

    store = out / "sonar.zarr"
    if not store.exists():
        with output_errors(f"The folder {out} cannot be created", "Choose another --out."):
            out.mkdir(parents=True, exist_ok=True)
        with_source = files("dsel") / "examples" / "sonar.csv"
        ingest(str(with_source), store, target=["rock"], chunks=(64, 60))
    return store


def render_demo(found: dict[str, Selection], out: Path, width: int | None = None) -> str:
    """Return the answer of POSS, its comparison with forward selection, and what to do next, as text."""
    forward, poss = found["forward"], found["poss"]
    return (
        f"{render(poss, width)}\n"
        f"Share of the variance of rock/mine explained by {K} of 60 frequency bands:\n"
        f"  forward selection {forward.r2:.6f}\n"
        f"  POSS              {poss.r2:.6f}\n"
        f"  best possible     {OPTIMUM:.6f} (known from exhaustive search)\n\n"
        f"Saved in {out}: sonar.zarr, forward, poss. Next:\n"
        f"  dsel certify {out / 'poss'}                   # prove how good it is\n"
        f"  dsel compare {out / 'forward'} {out / 'poss'}\n"
        f"  dsel init {out / 'sonar.zarr'}                # write a job file for these data"
    )
