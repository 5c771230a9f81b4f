"""The report as one document: what the HTML and the Markdown show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipelines.papers.report.model import Comparison, ComparisonTable
from pipelines.papers.report.saved import Made
from pipelines.papers.report.settings import Paper, Part
from pipelines.papers.report.wording import counts


@dataclass(frozen=True)
class Section:
    """A part and what was made of it; `made` is None if it was not asked for."""

    part: Part
    made: Made | None


@dataclass(frozen=True)
class Differences:
    """Comparisons in one part that do not agree, for the same reason."""

    where: str
    reason: str
    rows: tuple[tuple[ComparisonTable, Comparison], ...]


@dataclass(frozen=True)
class Document:
    """All that the report shows."""

    papers: tuple[tuple[Paper, tuple[Section, ...]], ...]
    quick: bool

    @classmethod
    def of(cls, papers: Sequence[Paper], made: dict[str, Made], quick: bool) -> Document:
        """Return the document of parts by name."""
        sections = tuple((paper, tuple(Section(part, made.get(part.name)) for part in paper.parts)) for paper in papers)
        return cls(sections, quick)

    @property
    def made(self) -> list[Made]:
        return [section.made for _, sections in self.papers for section in sections if section.made is not None]

    @property
    def seconds(self) -> float:
        return sum(made.seconds for made in self.made)

    @property
    def counts(self) -> dict[str, int]:
        """How many comparisons have each state."""
        return counts(row for made in self.made if made.content is not None for row in made.content.comparisons)

    @property
    def claims(self) -> tuple[int, int]:
        """How many statements of the papers our figures confirm, and how many there are."""
        said = [claim.holds for made in self.made if made.content is not None for claim in made.content.claims]
        return sum(said), len(said)

    @property
    def differences(self) -> list[Differences]:
        """The comparisons that do not agree, by part and reason."""
        found: dict[tuple[str, str], list[tuple[ComparisonTable, Comparison]]] = {}
        for paper, sections in self.papers:
            for section in sections:
                where = f"{paper.name}, {section.part.title.split(':')[0]}"
                tables = section.made.content.tables if section.made and section.made.content else ()
                for table in tables:
                    for row in (row for row in table.rows if row.state == "differs"):
                        found.setdefault((where, row.reason), []).append((table, row))
        return [Differences(where, reason, tuple(rows)) for (where, reason), rows in found.items()]

    @property
    def missing(self) -> list[tuple[str, str]]:
        """What cannot be made, by paper, and parts that failed or were not made."""
        found: list[tuple[str, str]] = []
        for paper, sections in self.papers:
            for section in sections:
                if section.made is None:
                    found.append((paper.name, f"{section.part.title}: not made in this run."))
                elif section.made.content is None:
                    found.append((paper.name, f"{section.part.title}: failed. {section.made.error}"))
                else:
                    found += [(paper.name, reason) for reason in section.made.content.missing]
                    found += [(paper.name, reason) for reason in _not_computed(section)]
        return found


def _not_computed(section: Section) -> list[str]:
    """Return which single numbers of a part were not computed, by reason."""
    found: dict[str, list[str]] = {}
    for row in section.made.content.comparisons if section.made and section.made.content else ():
        if row.state == "paper only":
            found.setdefault(row.reason or "no reason is known.", []).append(f"{row.data}, {row.method}")
    where = section.part.title.split(":")[0]
    return [f"{where}, {'; '.join(rows)}: {reason}" for reason, rows in found.items()]
