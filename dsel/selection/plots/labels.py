"""Labels of columns that are short enough for a picture, and still different from each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

ELLIPSIS = "…"


def short_labels(labels: Iterable[str], width: int = 18) -> list[str]:
    """Return labels of at most about `width` characters, cut in the middle, since ends often tell labels apart.

    Labels that would become equal keep more characters, or get a number where they are equal.
    """
    clean = [printable(label) for label in labels]
    short = [_cut(label, width) for label in clean]
    for wider in range(width + 4, 3 * width, 4):
        repeated = _repeated(short)
        if not repeated:
            return short
        short = [_cut(full, wider) if cut in repeated else cut for full, cut in zip(clean, short, strict=True)]
    return _numbered(short)


def printable(label: str) -> str:
    """Return a label on one line, without control characters."""
    text = "".join(c if c.isprintable() else " " for c in label)
    return " ".join(text.split()) or "(blank)"


def plain_text(label: str) -> str:
    """Return a label that matplotlib draws as it is, also where it contains dollar signs."""
    return label.replace("$", r"\$")


def _cut(label: str, width: int) -> str:
    if len(label) <= width:
        return label
    tail = width // 2
    return label[: width - 1 - tail].rstrip() + ELLIPSIS + label[-tail:].lstrip()


def _repeated(labels: list[str]) -> set[str]:
    return {label for label, count in Counter(labels).items() if count > 1}


def _numbered(labels: list[str]) -> list[str]:
    repeated, seen, numbered = _repeated(labels), Counter[str](), []
    for label in labels:
        seen[label] += 1
        numbered.append(f"{label} ({seen[label]})" if label in repeated else label)
    return numbered
