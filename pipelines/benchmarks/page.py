"""Write what `all` found: all.json, a page of Markdown, and its pictures."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pipelines.benchmarks.peers_worker import TARGET
from pipelines.benchmarks.protocol import ROOT, Figures
from pipelines.benchmarks.scaling import PROCESSORS
from pipelines.benchmarks.scaling_report import Model, draw_efficiencies
from pipelines.table import json_line

SITE, STATIC = ROOT / "deploy/docs/explanation/comparison.md", ROOT / "deploy/docs/_static/benchmarks"
PICTURES = {
    "quality": "Share of the squared norm that k columns explain, against the time of each tool.",
    "rows": "Time against the number of rows, 200 columns, k = 10.",
    "columns": "Time against the number of columns, 500 rows, k = 10.",
    "memory": "Memory above that of the data, 500 rows and the most columns.",
    "scaling": "Efficiency on up to 32 workers, for a criterion that waits 50 ms.",
}


def write(out: Path, report: Figures, site: bool) -> None:
    """Write all.json, comparison.md and its pictures into `out`, and with `site` the page of the site."""
    (out / "all.json").write_text(json_line(report) + "\n")
    folder = out / "pictures"
    folder.mkdir(exist_ok=True)
    drawn = _draw(report["parts"], folder)
    (out / "comparison.md").write_text(text(report, drawn, "pictures"))
    if site:
        shutil.rmtree(STATIC, ignore_errors=True)
        shutil.copytree(folder, STATIC)
        SITE.write_text(text(report, drawn, "../_static/benchmarks"))


def text(report: Figures, drawn: Sequence[str], folder: str) -> str:
    """Return the page."""
    parts: dict[str, Figures] = report["parts"]
    versions = {**report["versions"], **{k: v for f in parts.values() for k, v in f.get("tool_versions", {}).items()}}
    quick = " (`--quick`: small data, rough figures)" if report["quick"] else ""
    lines = [
        "# Compared with other tools",
        "",
        f"`python -m pipelines.benchmarks all` wrote this page{quick}. It ran on {report['cores']} cores. Times are "
        "processor seconds of one thread, medians of rounds that go through the tools in turn, without compilation. "
        "Columns are standardized. For Y = X they are not centered and have norm 1 (`preprocess` is unit), and missing "
        "values have the mean of the column. "
        f"Versions: {', '.join(f'{name} {number}' for name, number in versions.items())}.",
        "",
    ]
    for name in drawn:
        lines += [f"![{PICTURES[name]}]({folder}/{name}.png)", "", PICTURES[name], ""]
    lines += ["## Where another tool is ahead", ""]
    lines += [
        "A tool is ahead where no method of dsel explains as much in its time, or proves a problem as fast.", "",
        *_table(("in", "problem", "tool", "seconds", "dsel", "factor", "reason"), [
            (r["in"], r["problem"], r["peer"], *(_number(r.get(k)) for k in ("seconds", "dsel", "factor")), r["reason"])
            for r in report["behind"]
        ]),
    ]  # fmt: skip
    limits = parts.get("limits", {})
    reasons = {row["figure"]: row["reason"] for row in limits.get("far_from_limit", [])}
    lines += ["## Next to the limits of the machine", ""]
    if "limits" in limits:
        speed, rate = limits["bytes_per_second"] / 1e9, limits["blas_flops"] / 1e9
        lines += [f"One thread read {speed:.1f} GB/s and made {rate:.1f} GFLOP/s (dsyrk).", ""]
    rows = [
        (
            name,
            f"{row['seconds']:.3g} s",
            f"{row['limit']:.3g} s",
            _number(row["factor"]),
            row["what"],
            reasons.get(name, ""),
        )
        for name, row in limits.get("limits", {}).items()
    ]
    lines += _table(("figure", "measured", "limit", "factor", "the limit is", "why"), rows)
    lines += ["## What was not compared", "", *[f"- {tool}: {why}" for tool, why in report["absent"].items()], ""]
    for title, key in (("Not finished", "unfinished"), ("Left out by `--quick`", "left_out")):
        lines += [f"{title}: {', '.join(report[key])}.", ""] if report[key] else []
    slower = [f"- {row['figure']}: {row['factor']:.2f} times since {row['since']}" for row in report["slower"]]
    return "\n".join([*lines, *(["Slower than the last entry of the history:", "", *slower, ""] if slower else [])])


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    listed = [f"| {' | '.join(row)} |" for row in rows]
    if not listed:
        return ["None.", ""]
    return [f"| {' | '.join(header)} |", "|" + "---|" * len(header), *listed, ""]


def _draw(parts: dict[str, Figures], folder: Path) -> list[str]:
    """Draw what there are figures for, and return the names; nothing without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print("No pictures: pip install -e .[plots]")
        return []
    quality, waiting = parts.get("peers quality", {}), parts.get("scaling waiting", {})
    by_rows, by_columns = (parts.get(f"peers {n}", {}).get(f"time_by_{n}", []) for n in ("rows", "columns"))
    drawn = []
    for name, ready, draw in (
        ("quality", quality.get("quality_and_time"), _quality), ("rows", by_rows, _growth),
        ("columns", by_columns, _growth), ("memory", by_columns, _memory),
        ("scaling", waiting.get("waiting"), _scaling),
    ):  # fmt: skip
        if ready:
            figure = Figure(figsize=(9, 5), layout="constrained")
            draw(figure, waiting if name == "scaling" else ready)
            figure.savefig(folder / f"{name}.png", dpi=100)
            drawn.append(name)
    return drawn


def _style(tool: str) -> dict[str, Any]:
    """Return how a tool is drawn: in the same color in all pictures."""
    own = tool.startswith("dsel")
    color = f"C{list(TARGET).index(tool) % 10}"
    return {"marker": "o" if own else "x", "linestyle": "-" if own else "--", "color": color, "label": tool}


def _quality(figure: Any, rows: Any) -> None:
    problems = list(dict.fromkeys(row["problem"] for row in rows))
    wide = -(-len(problems) // 2)
    drawn: dict[str, Any] = {}
    for i, problem in enumerate(problems):
        axes = figure.add_subplot(2, wide, i + 1)
        for row in (r for r in rows if r["problem"] == problem):
            drawn[row["tool"]] = axes.plot(row["seconds"], row["explained"], **_style(row["tool"]))[0]
        axes.set(xscale="log", xlabel="CPU seconds", ylabel="share explained")
        axes.set_title(problem, fontsize=9)
    figure.legend(list(drawn.values()), list(drawn), loc="outside right", fontsize=7)


def _growth(figure: Any, rows: Any) -> None:
    axes = figure.subplots()
    for tool in dict.fromkeys(row["tool"] for row in rows):
        own = sorted((row["size"], row["seconds"]) for row in rows if row["tool"] == tool)
        axes.plot(*zip(*own, strict=True), **_style(tool))
    last = rows[-1]
    grows = "rows" if last["problem"].startswith(str(last["size"])) else "columns"
    axes.set(xscale="log", yscale="log", ylabel="CPU seconds", xlabel=grows)
    figure.legend(loc="outside right", fontsize=8)


def _memory(figure: Any, rows: Any) -> None:
    largest = max(row["size"] for row in rows)
    own = sorted((row["peak"] / 2**20, row["tool"]) for row in rows if row["size"] == largest)
    axes = figure.subplots()
    axes.barh([tool for _, tool in own], [peak for peak, _ in own])
    axes.set(xlabel="MiB above the data", title=f"{largest} columns")


def _scaling(figure: Any, waiting: Any) -> None:
    draw_efficiencies(figure.subplots(), waiting["waiting"], Model(**waiting["model"]), PROCESSORS)
