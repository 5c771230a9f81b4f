"""The statements of the papers that our figures do not confirm, and why. The documentation shows them as a table."""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.papers.report.document import Document


@dataclass(frozen=True)
class Unconfirmed:
    """A statement of a paper. part: of the report. said: as in the part. ours: our figures in a few words."""

    where: str
    part: str
    said: str
    ours: str
    why: str


UNCONFIRMED = (
    Unconfirmed(
        "POSS, Figure 2", "poss-figure-2",
        "POSS is as good as forward selection after much less than the theoretical time.",
        "15 % of the time on clean1, 28 % on colon-cancer; on madelon it stays 2.5e-5 below in R²",
        "on madelon, the search from the empty set does not reach the path of forward selection in its iterations; the "
        "default `warm_start: forward` begins with it",
    ),
    Unconfirmed(
        "POSS, Figure 4b", "poss-curves", "With the ridge, POSS has the best test R².",
        "averaged over k, .0012 below FR; over the paper's k, .0007 ± .0015 below",
        "its training error is the least, and the difference on test halves is within the noise of the splits",
    ),
    Unconfirmed(
        "PPOSS, Figure 1", "pposs-figure-1", "The speedup of PPOSS is around 7 on 10 cores.",
        "5.4 by counts of evaluations; 9.1 with 96 logical processors, 10.0 for PPOSS-asy",
        "45 % of the offspring are known already and are not evaluated again, so POSS alone is faster, too, and some "
        "workers have nothing to do in a round",
    ),
    Unconfirmed(
        "POCSS, Table 1", "pocss-table-1", "POCSS has the smallest error ratio on every data set.",
        "on sonar, weighted A* reaches 2.5221 and POCSS 2.5233",
        "weighted A* stands in for WA*-b, whose formula no available text has; its parameter is the best that ends in "
        "the time. POCSS has the smallest ratio of all the others, and the paper's number",
    ),
)  # fmt: skip


def table() -> str:
    """Return the statements as a table in Markdown."""
    rows = [f"| {one.where} | {one.said} | {one.ours} | {one.why} |" for one in UNCONFIRMED]
    return "\n".join(["| where | statement | ours | why |", "|---|---|---|---|", *rows])


def differences(document: Document) -> list[str]:
    """Return what a report and the table say differently about statements."""
    known, found = {(one.part, one.said) for one in UNCONFIRMED}, []
    for made in document.made:
        for claim in made.content.claims if made.content is not None else ():
            if claim.holds == ((made.name, claim.said) in known):
                verb = "confirmed, but in the table" if claim.holds else "not confirmed, and not in the table"
                found.append(f"{made.name}: {verb}: {claim.said} {claim.found}".rstrip())
    return found
