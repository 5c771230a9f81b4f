"""Docstrings of what users and plugin authors call follow the numpydoc standard."""

from __future__ import annotations

import pytest
from numpydoc.validate import validate

#: Checked: a docstring exists, its summary is one sentence in the imperative, and every parameter, return value and
#: yield is described with its type.
CHECKS = {
    "GL08", "SS01", "SS02", "SS03", "SS04", "SS05", "PR01", "PR02", "PR03", "PR04", "PR07", "RT01", "RT02", "RT03",
    "YD01",
}  # fmt: skip

PUBLIC = [
    "dsel.select",
    "dsel.plan",
    "dsel.ingest",
    "dsel.open_store",
    "dsel.open_selection",
    "dsel.Selection",
    "dsel.Selection.save",
    "dsel.Selection.predict",
    "dsel.Selection.report",
    "dsel.Selection.to_frame",
    "dsel.Selection.to_xarray",
    "dsel.Selection.transform",
    "dsel.report",
    "dsel.CrossValidated",
    "dsel.SizeRule",
    "dsel.selection.size_curve.SizeCurve",
    "dsel.data.row_partition.RowPartition",
    "dsel.config.job.read_job",
    "dsel.config.job.read_cluster",
    "dsel.config.request.SelectionRequest",
    "dsel.data.dataset.Dataset",
    "dsel.data.criterion_data.ColumnData",
    "dsel.data.formats.base.Format",
    "dsel.data.formats.base.Reader",
    "dsel.data.formats.base.Rows",
    "dsel.data.formats.base.Source",
    "dsel.data.formats.base.SourceOptions",
    "dsel.engine.base.Engine.run",
    "dsel.engine.base.Engine.keep",
    "dsel.engine.dask_engine.DaskEngine",
    "dsel.engine.thread_engine.ThreadEngine",
    "dsel.jobs.checkpoint.Checkpoints",
    "dsel.jobs.predict.predict_run",
    "dsel.jobs.run_folder.RunFolder",
    "dsel.jobs.runner.run_job",
    "dsel.objective.base.Objective.value",
    "dsel.objective.base.Objective.rank",
    "dsel.objective.base.Objective.rows",
    "dsel.objective.base.Objective.moment_rows",
    "dsel.objective.base.Objective.entries",
    "dsel.objective.base.Objective.fetch_rows",
    "dsel.objective.base.Objective.subset_tables",
    "dsel.objective.base.Objective.restrict",
    "dsel.objective.base.Objective.condition",
    "dsel.objective.base.Objective.in_data",
    "dsel.objective.base.Objective.counts",
    "dsel.objective.dense.DenseObjective",
    "dsel.objective.on_demand.OnDemandObjective",
    "dsel.passes.base.Pass",
    "dsel.passes.base.PassCost",
    "dsel.planning.plan.Plan",
    "dsel.planning.plan.make_plan",
    "dsel.planning.representations.base.Prepared",
    "dsel.planning.representations.base.ProblemShape",
    "dsel.planning.representations.base.Representation",
    "dsel.planning.representations.base.Resources",
    "dsel.planning.validation.ValidatedRequest",
    "dsel.planning.validation.validate",
    "dsel.search.outcome.FrontPoint",
    "dsel.search.outcome.SearchOutcome",
    "dsel.search.exact.astar.method.AStarOptions",
    "dsel.search.exact.branch_and_bound.method.BranchAndBoundOptions",
    "dsel.search.greedy.cross_validated_base.CrossValidationOptions",
    "dsel.search.greedy.exchange.ExchangeOptions",
    "dsel.search.greedy.foba.FobaOptions",
    "dsel.search.method.CrossValidation",
    "dsel.search.method.Method",
    "dsel.search.method.ProblemSummary",
    "dsel.search.method.Requirements",
    "dsel.search.method.SearchTask",
    "dsel.search.options.Options",
    "dsel.search.parallel.executor.Task",
    "dsel.search.parallel.executor.TaskResult",
    "dsel.search.pareto.options.StopOptions",
    "dsel.search.registry.find_method",
    "dsel.selection.chosen.ChosenStatistics",
    "dsel.selection.context.RunContext",
    "dsel.selection.export.export_text",
    "dsel.selection.export.write_export",
    "dsel.selection.predict_store.PredictionReport",
    "dsel.selection.predict_store.predict_store",
    "dsel.selection.plots.accessor.SelectionPlots",
    *(
        f"dsel.selection.plots.accessor.SelectionPlots.{name}"
        for name in ("front", "path", "subsets", "trace", "coefficients", "correlation")
    ),
    "dsel.selection.report.page.render_report",
]


@pytest.mark.parametrize("name", PUBLIC)
def test_it_follows_the_standard(name: str) -> None:
    problems = [(code, message) for code, message in validate(name)["errors"] if code in CHECKS]
    assert not problems
