"""The parts of the report, in its order."""

from __future__ import annotations

from pipelines.papers.greedy_rls import curves_part, timing
from pipelines.papers.heuristic_search import figure_3
from pipelines.papers.heuristic_search import tables_part as heuristic_tables
from pipelines.papers.pocss import figures as pocss_figures
from pipelines.papers.pocss import table_1_part as pocss_table_1
from pipelines.papers.poss import curves, figure_2, table_1_part, table_2_part
from pipelines.papers.pposs import figure_1
from pipelines.papers.report.settings import Paper, Part

PAPERS = (
    Paper(
        "POSS", "Subset selection by Pareto optimization", "Qian, Yu, Zhou, NIPS 2015.",
        (
            Part("poss-table-1", "Table 1: the data sets", table_1_part.make),
            Part("poss-table-2", "Table 2: training R², k = 8", table_2_part.make),
            Part("poss-curves", "Figures 1, 3, 4: R² against k, with and without a ridge", curves.make),
            Part("poss-figure-2", "Figure 2: R² against evaluations", figure_2.make),
        ),
    ),
    Paper(
        "PPOSS", "Parallel Pareto optimization for subset selection", "Qian, Shi, Yu, Tang, Zhou, IJCAI 2016.",
        (Part("pposs-figure-1", "Figure 1: speedup and R² against the number of processors", figure_1.make),),
    ),
    Paper(
        "POCSS", "Unsupervised feature selection by Pareto optimization", "Feng, Qian, Tang, AAAI 2019.",
        (
            Part("pocss-table-1", "Table 1: error ratio, k = 50", pocss_table_1.make),
            Part("pocss-figure-1", "Figure 1: error ratio against k", pocss_figures.make_figure_1),
            Part("pocss-figure-2", "Figure 2: error ratio against evaluations", pocss_figures.make_figure_2),
        ),
    ),
    Paper(
        "Heuristic search", "Heuristic search algorithms for approximating one matrix in terms of another matrix",
        "Wan, Schweitzer, AAAI 2021.",
        (
            Part("heuristic-tables", "Tables 1 and 2: errors and bounds", heuristic_tables.make),
            Part("heuristic-figure-3", "Figure 3: error and time against γ", figure_3.make),
        ),
    ),
    Paper(
        "Greedy RLS", "Linear time feature selection for regularized least-squares",
        "Pahikkala, Airola, Salakoski, 2010.",
        (
            Part("greedy-rls-timing", "Figures 1 to 3: time against the number of rows", timing.make),
            Part("greedy-rls-curves", "Figures 4 to 15: accuracy against the number of features", curves_part.make),
        ),
    ),
)  # fmt: skip
