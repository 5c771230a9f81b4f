"""Words in messages: lists that are cut short, suggestions for a misspelled name, and text that is safe to print."""

from __future__ import annotations

import math
from collections.abc import Iterable
from difflib import get_close_matches

#: What a message that numbers rows says about the numbers. A header of a text file is no row.
FIRST_ROW = "the first row of data is row 0"
#: The exponential of a larger number, or of its negative, may be out of float64's range.
_LARGEST_EXPONENT = 700.0
#: Digits after the point of a percentage, at most.
_MOST_DIGITS = 10
#: With a smaller exponent, four digits of the exponential are those of 1.
_LEAST_EXPONENT = 5e-4


def shorten(items: Iterable[str], limit: int = 5) -> str:
    """Return the first `limit` items, separated by commas, and how many more there are."""
    everything = list(items)
    rest = len(everything) - limit
    return ", ".join(everything[:limit]) + (f" and {rest} more" if rest > 0 else "")


def counted(number: int, word: str, plural: str = "") -> str:
    """Return a number with a word in the singular or the plural."""
    return f"{number} {noun(number, word, plural)}"


def noun(number: int, word: str, plural: str = "") -> str:
    """Return a word in the singular or the plural."""
    return word if number == 1 else plural or word + "s"


def counted_items(number: int, items: str) -> str:
    """Return a number with what it counts, given in the plural: columns, or groups of columns."""
    word, *rest = items.split(" ", 1)
    return counted(number, " ".join([word.removesuffix("s"), *rest]), items)


def passes_over_data(passes: int, bytes_read: int) -> str:
    """Return a number of passes in words. A read of new rows alone counts as none.

    Examples
    --------
    >>> passes_over_data(2, 800), passes_over_data(0, 8), passes_over_data(0, 0)
    ('2 passes', 'part of a pass', '0 passes')
    """
    return "part of a pass" if bytes_read and not passes else counted(passes, "pass", "passes")


def percent(share: float) -> str:
    """Return a share in percent with two decimals, or with two digits where these would hide it.

    Examples
    --------
    >>> percent(0.01234), percent(2.3e-5), percent(0.0)
    ('1.23%', '0.0023%', '0.00%')
    """
    return f"{100.0 * share:.2g}%" if 0.0 < share < 5e-4 else f"{share:.2%}"


def percent_below(share: float) -> str:
    """Return the largest share in percent with two decimals that is below a share, or two digits as `percent`.

    Examples
    --------
    >>> percent_below(0.0010516), percent_below(0.01), percent_below(1.07e-5)
    ('0.10%', '0.99%', '0.001%')
    """
    digits = 2 if share > 1e-4 else 1 - math.floor(math.log10(100.0 * share))
    unit = 10.0 ** (digits + 2)
    return percent((math.ceil(share * unit) - 1) / unit)


def at_most(bound: float, decimals: int = 4) -> str:
    """Return an upper bound with this number of decimals, rounded up.

    Examples
    --------
    >>> at_most(0.50431), at_most(0.5)
    ('0.5044', '0.5000')
    """
    unit = 10.0**decimals
    return f"{math.ceil(unit * bound - 1e-8) / unit:.{decimals}f}"


def at_least(bound: float, digits: int = 6, style: str = "") -> str:
    """Return a lower bound of 0 or more with this number of significant digits, rounded down.

    style: "#" for zeros at the end, too.

    Examples
    --------
    >>> at_least(69.66537), at_least(69.66537, 4), at_least(70.0), at_least(70.0, style="#")
    ('69.6653', '69.66', '70', '70.0000')
    """
    if bound > 0.0:
        unit = 10.0 ** (digits - 1 - math.floor(math.log10(bound)))
        bound = math.floor(bound * unit * (1.0 + 1e-12)) / unit
    return f"{bound:{style}.{digits}g}"


def percent_between(share: float, least: float, beyond: float) -> str:
    """Return a share in percent with as few digits as it takes: exact, or from `least` to less than `beyond`.

    least, beyond: at most the share, and at least the share.

    Examples
    --------
    >>> percent_between(0.05, 0.04, 0.05), percent_between(0.0388117, 0.0388117, 0.0388226)
    ('5.00%', '3.882%')
    """
    for digits in range(2, _MOST_DIGITS):
        unit = 10.0 ** (digits + 2)
        up = math.ceil(share * unit - 1e-9)
        if up - share * unit <= 1e-9:
            return f"{up / unit:.{digits}%}"
        if share * unit >= 5.0:
            found = [value for value in (up, up - 1) if least <= value / unit < beyond]
            if found:
                return f"{found[0] / unit:.{digits}%}"
    return f"{share:.{_MOST_DIGITS}%}"


def round_up(number: float) -> float:
    """Return the least number that is not below a positive one and has one digit, or 5 as its second digit.

    Examples
    --------
    >>> round_up(20.0), round_up(82.0), round_up(131.0)
    (20.0, 85.0, 150.0)
    """
    step = 0.5 * 10.0 ** math.floor(math.log10(number))
    return math.ceil(number / step) * step


def exponential(exponent: float) -> str:
    """Return e to this power with four digits, as a power of ten where float64 has no such number.

    Near 1 it is the sum of 1 and the difference.

    Examples
    --------
    >>> exponential(0.0), exponential(1e-5), exponential(1000.0), exponential(-1000.0)
    ('1', '1+1e-05', '1.97e+434', '5.076e-435')
    """
    if 0.0 < abs(exponent) < _LEAST_EXPONENT:
        return f"1{math.expm1(exponent):+.3g}"
    if abs(exponent) < _LARGEST_EXPONENT:
        return f"{math.exp(exponent):.4g}"
    power, rest = divmod(exponent / math.log(10.0), 1.0)
    return f"{10.0**rest:.4g}e{int(power):+d}"


def without_pydantic_prefix(message: str) -> str:
    """Return a message that came through pydantic without the words it adds."""
    return message.replace("Value error, ", "", 1)


def printable(text: object, *, keep_lines: bool = False) -> str:
    r"""Return the text with control characters escaped, so that it cannot command the terminal or forge a log line.

    Parameters
    ----------
    text : object
        What to print, such as a label that came from a file.
    keep_lines : bool
        Keep line breaks.

    Examples
    --------
    >>> printable("a\x1b]52;c;\x07b")
    'a\\x1b]52;c;\\x07b'
    """
    words = str(text)
    if words.isprintable():
        return words
    kept = "\n" if keep_lines else ""
    return "".join(c if c.isprintable() or c in kept else c.encode("unicode_escape").decode() for c in words)


def suggest(word: str, known: Iterable[str], *, closest: int = 1, listed: int | None = None) -> str:
    """Return a sentence that suggests the known names similar to `word`, or lists the known names.

    Case, "-" or "_", and spaces around it make no difference.

    Parameters
    ----------
    word : str
        The unknown name.
    known : iterable of str
        The known names.
    closest : int
        How many names to suggest at most.
    listed : int, optional
        How many names to list at most; by default all.
    """
    names = list(known)
    by_key = {_key(name): name for name in reversed(names)}
    key = _key(word)
    close = [key] if key in by_key else get_close_matches(key, by_key, n=closest, cutoff=0.75)
    if not close and len(key) > 2:
        close = [known for known in reversed(by_key) if known.startswith(key)][:closest]
    if close:
        return f"Did you mean {' or '.join(repr(by_key[key]) for key in close)}?"
    quoted = [repr(name) if "," in name else name for name in names]
    return f"Known: {shorten(quoted, listed or len(names)) or 'none'}."


def _key(name: str) -> str:
    return name.strip().lower().replace("_", "-")
