"""What can go wrong, grouped by what the person (or the scheduler) who sees it does next.

Every error says what is wrong, where, with the numbers, and then the remedy. `kind` is a stable word for programs,
`exit_code` what the command line returns (the values of sysexits.h where one fits). All are picklable, so that an
error raised on a worker arrives whole.
"""

from __future__ import annotations


class DselError(Exception):
    """Base of all errors that `dsel` raises on purpose. `remedy` is a sentence that says what to do about it."""

    kind = "error"
    exit_code = 70

    def __init__(self, what: str, remedy: str = "") -> None:
        super().__init__(what, remedy)
        self.what = what
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.what} {self.remedy}".rstrip()


class OptionError(DselError):
    """An argument, option or job file is wrong: correct it and start again."""

    kind = "option"
    exit_code = 64


class DataError(DselError):
    """The data cannot be used as they are (NaN, a corrupt chunk, shapes that do not fit): mend the data."""

    kind = "data"
    exit_code = 65


class MissingInputError(DselError):
    """A file or store that should be read is not there, or is not what it should be."""

    kind = "missing-input"
    exit_code = 66


class OutputError(DselError):
    """The results cannot be written where they should go, or something is there already."""

    kind = "output"
    exit_code = 73


class CapacityError(DselError):
    """The work does not fit the memory or the disk there is: more of it, or a smaller problem."""

    kind = "capacity"
    exit_code = 71


class ClusterError(DselError):
    """The cluster did not do its part (no workers, all paused, lost): the same job may work when started again."""

    kind = "cluster"
    exit_code = 69


class StorageError(DselError):
    """Object storage did not answer, however often it was asked (`attempts`): the same work goes on when it is well."""

    kind = "storage"
    exit_code = 74

    def __init__(self, what: str, remedy: str = "", attempts: int = 1) -> None:
        super().__init__(what, remedy)
        self.args = (what, remedy, attempts)
        self.attempts = attempts


class AccessError(DselError):
    """Object storage refuses: no credentials, wrong ones, or no right to read or write there."""

    kind = "access"
    exit_code = 77


class MissingExtraError(DselError):
    """An optional dependency is not installed."""

    kind = "missing-extra"
    exit_code = 69


class CriterionError(DselError):
    """A user's own criterion raised or returned something that is not a number."""

    kind = "criterion"
    exit_code = 70


class Interrupted(DselError):
    """Stopped by a signal after writing a checkpoint: start the same job again and it goes on."""

    kind = "interrupted"
    exit_code = 75
