"""Labels of columns that are short enough for a picture, and still different from each other."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from unicodedata import east_asian_width

ELLIPSIS = "…"
#: Words and what separates them.
_WORDS = re.compile(r"([^\w]+|_+)")
#: Fewer labels than this keep the words that they share.
_FEWEST_THAT_SHARE = 3


def short_labels(labels: Iterable[str], width: int = 18) -> list[str]:
    """Return labels of at most about `width` characters.

    Words that all long labels share are left out first. Then labels are cut in the middle, since ends often tell them
    apart. Labels that would become equal keep more characters, or get a number where they are equal.
    """
    clean = _without_shared_words([printable(label) for label in labels], width)
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


def counted(size: int, grouped: bool = False) -> str:
    """Return a number of columns, or of groups of columns, in words."""
    word = "group" if grouped else "column"
    return f"{size:,} {word}{'' if size == 1 else 's'}"


def plain_text(label: str) -> str:
    """Return a label that matplotlib draws as it is, also where it contains dollar signs."""
    return label.replace("$", r"\$")


def true_minus(number: str) -> str:
    """Return a number with a minus sign in place of the hyphen."""
    return number.replace("-", "−")


def _without_shared_words(labels: list[str], width: int) -> list[str]:
    """Return labels in which an ellipsis replaces the words that all long labels of as many words share."""
    groups: dict[int, list[int]] = defaultdict(list)
    words = [_WORDS.split(label) for label in labels]
    for i, label in enumerate(labels):
        if len(label) > width:
            groups[len(words[i])].append(i)
    shorter = list(labels)
    for count, members in groups.items():
        shared = [len({words[i][place] for i in members}) == 1 for place in range(count)]
        if len(members) >= _FEWEST_THAT_SHARE and not all(shared):
            for i in members:
                kept = [ELLIPSIS if same else word for word, same in zip(words[i], shared, strict=True)]
                shorter[i] = re.sub(f"{ELLIPSIS}+", ELLIPSIS, "".join(kept))
    return shorter


def _cut(label: str, width: int) -> str:
    if any(east_asian_width(c) in "WF" for c in label):
        width = max(width // 2, 3)  # such letters are twice as wide
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
