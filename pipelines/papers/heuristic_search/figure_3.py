"""Figure 3 of the heuristic search paper, upper panel: error and time against gamma, libras, 46 targets, k = 5."""

from __future__ import annotations

from typing import Any

from pipelines.papers.heuristic_search import tables
from pipelines.papers.report.model import Claim, Content, Grid, Plot, Series
from pipelines.papers.report.settings import Settings

_LOWER = "Figure 3, lower panel: duke breast cancer is not available."
_QUICK = (2.0, float("inf"))


def _point(task: tuple[float, float]) -> dict[str, Any]:
    gamma, seconds = task
    problem = tables.case("libras 45/46", 5)
    assert problem is not None
    return {"gamma": "∞" if gamma == float("inf") else f"{gamma:g}", **tables.best_first(problem, gamma, seconds)}


def make(settings: Settings) -> Content:
    """Compute the figure."""
    if tables.case("libras 45/46", 5) is None:
        return Content.without_data("Figure 3: libras and duke breast cancer are not available.")
    gammas, seconds = settings.pick((tables.FIGURE_3_GAMMAS, 60.0), (_QUICK, 0.5))
    points = settings.map(_point, [(gamma, seconds) for gamma in gammas])
    x, names = tuple(map(float, range(len(points)))), tuple(point["gamma"] for point in points)
    ended = [point for point in points if point["ended"]]
    errors = [point["error"] for point in ended]
    return Content(
        lead=f"f = l + γu; ∞ stands for f = u. A search stops after {seconds:g} s, and shows the best subset so far.",
        plots=(
            Plot(
                title="Error", x="γ", y="error", x_names=names,
                series=(Series(name="error", x=x, y=tuple(p["error"] for p in points), kind="points"),),
                words=f"From {points[0]['error']:.0f} to {points[-1]['error']:.0f}.",
            ),
            Plot(
                title="Time", x="γ", y="seconds", x_names=names, log_y=True,
                series=(Series(name="seconds", x=x, y=tuple(max(p["seconds"], 1e-3) for p in points), kind="points"),),
                words=f"From {points[0]['seconds']:.1f} s to {points[-1]['seconds']:.2f} s.",
            ),
        ),
        grids=(
            Grid(
                title="Points of the figure", head=("γ", "error", "b / error", "nodes", "seconds", ""),
                rows=tuple(
                    (p["gamma"], f"{p['error']:.0f}", f"{p['bound']:.3f}", f"{p['nodes']:,}", f"{p['seconds']:.2f}",
                     "" if p["ended"] else "stopped")
                    for p in points
                ),
            ),
        ),
        claims=(
            Claim(
                said="As γ grows, the error goes from the optimum to the greedy one, and the time falls.",
                holds=errors == sorted(errors) and points[-1]["seconds"] <= points[0]["seconds"],
                found=f"Of the {len(ended)} searches that ended.",
            ),
        ),
        missing=(_LOWER,),
    )  # fmt: skip
