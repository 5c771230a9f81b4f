"""The errors of dsel, one class for each thing that the person (or the scheduler) who sees it can do next.

A message says what is wrong and where, with the numbers, and then the remedy. `kind` is a stable word for programs.
`exit_code` is what the command line returns (the values of sysexits.h where one fits). All errors pickle, so that an
error raised on a worker arrives complete.
"""

from __future__ import annotations


class DselError(Exception):
    """Base class of all errors that dsel raises on purpose.

    Parameters
    ----------
    what : str
        What is wrong and where: a sentence, or two.
    remedy : str
        What to do about it: a sentence.

    Attributes
    ----------
    kind : str
        The class of the error as a stable word, such as "option" or "data".
    exit_code : int
        What the command line returns.

    Examples
    --------
    >>> error = OptionError("k is 0, and X has 5 columns.", "k is a whole number from 1 to 5.")
    >>> str(error)
    'k is 0, and X has 5 columns. k is a whole number from 1 to 5.'
    >>> error.kind, error.exit_code
    ('option', 64)
    """

    kind = "error"
    exit_code = 70

    def __init__(self, what: str, remedy: str = "") -> None:
        super().__init__(what, remedy)
        # What another library said may end with a full stop, too.
        self.what = what[:-1] if what.endswith("..") and not what.endswith("...") else what
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.what} {self.remedy}".rstrip()


class OptionError(DselError):
    """An argument, an option or the job file is wrong. Correct it and start again."""

    kind = "option"
    exit_code = 64


class DataError(DselError):
    """The data cannot be used as they are (NaN, a damaged chunk, shapes that do not fit). Correct the data."""

    kind = "data"
    exit_code = 65


class MissingInputError(DselError):
    """A file or a store that should be read does not exist, or is something else."""

    kind = "missing-input"
    exit_code = 66


class OutputError(DselError):
    """The results cannot be written to the given place, or would replace what is there. Other files there stay."""

    kind = "output"
    exit_code = 73


class CapacityError(DselError):
    """The work does not fit the memory or the disk. Provide more, or make the problem smaller."""

    kind = "capacity"
    exit_code = 71


class ClusterError(DselError):
    """The cluster failed (no workers, all paused, lost). The same job may work if it is started again."""

    kind = "cluster"
    exit_code = 69


class StorageError(DselError):
    """Object storage did not answer, after several attempts. Start the same work again later; it continues.

    Parameters
    ----------
    what, remedy : str
        As for `DselError`.
    attempts : int
        How often the request was sent.
    """

    kind = "storage"
    exit_code = 74

    def __init__(self, what: str, remedy: str = "", attempts: int = 1) -> None:
        super().__init__(what, remedy)
        self.args = (what, remedy, attempts)
        self.attempts = attempts


class AccessError(DselError):
    """Object storage denies access: there are no credentials, wrong ones, or no permission to read or write."""

    kind = "access"
    exit_code = 77


class MissingExtraError(DselError):
    """An optional dependency is not installed."""

    kind = "missing-extra"
    exit_code = 69


class CriterionError(DselError):
    """A custom criterion raised an exception, or returned something that is not a number."""

    kind = "criterion"
    exit_code = 70


class SelectionChanged(DselError):
    """The selection differs from that of the previous run, and the command was asked to end so. It is saved."""

    kind = "changed"
    exit_code = 80


class Interrupted(DselError):
    """A signal stopped the run after it wrote a checkpoint. Start the same job again; it continues."""

    kind = "interrupted"
    exit_code = 75


class NoProgressError(DselError):
    """A signal stopped a run with `--require-progress` before it saved anything. Give the job more time."""

    kind = "no-progress"
    exit_code = 76
