"""The objective of every search, as an interface.

Notation: X (m, n) data, Y (m, N) targets, lam the ridge penalty, K = X'X, B = X'Y, M = B B', c = ||Y||_F^2, and

    f(S) = min_A ||Y - X_S A||_F^2 + lam ||A||_F^2 = c - tr((K_SS + lam I)^-1 M_SS).

Column subset selection is Y = X, that is B = K and M = K^2. Nothing here reads data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from numpy.typing import ArrayLike

from dsel._lib.types import Floats, Ints
from dsel.objective.centering import CenteringError

if TYPE_CHECKING:
    from dsel._lib.kernel_arrays import KernelArrays
    from dsel.objective.kernels.layout import SubsetTables

#: With at most this many targets, residuals are kept for each target (B); with more, their cross-moments (M).
FEW_TARGETS = 8
#: With more columns than this, dense factorizations of the Gram matrix take too long for a proof.
MOST_DENSE = 5000
#: With more columns than this, and a limit for coefficients, passes prove more than the Gram matrix in the same time.
MOST_DENSE_LIMITED = 2500
#: The same where each coefficient has a limit.
MOST_DENSE_IN_BOX = 1000


class ItemState(Protocol):
    """A subset S of at most `limit` items that changes by one item at a time."""

    limit: int

    @property
    def objective(self) -> ItemObjective:
        """The objective over the items."""

    @property
    def size(self) -> int:
        """Number of members."""

    @property
    def members(self) -> list[int]:
        """S in the order of the state."""

    @property
    def value(self) -> float:
        """f(S)."""

    def insert(self, j: int) -> bool:
        """Insert an item; return False and do nothing if the state refuses it because S would be dependent."""

    def delete(self, j: int) -> None:
        """Delete a member."""

    def gains(self) -> Floats:
        """Return (n,) the decrease of f when each item is inserted; 0 for members and what depends on S."""

    def correlations(self) -> Floats:
        """Return (n,) the decrease of the squared residuals if only one item is fitted to them."""

    def residual_norms(self) -> Floats:
        """Return (n,) the squared norm of what S leaves of each item; 0 for members and what depends on S."""

    def losses(self) -> Floats:
        """Return (s,) the increase of f when each member is deleted, in the order of `members`."""

    def zeroing_costs(self) -> Floats:
        """Return (s,) the increase of f if one member's coefficients become zero."""


class ItemObjective(Protocol):
    """Error f(S) of subsets S of n items, numbered 0 to n - 1: columns, or groups of columns.

    A column is a group of one. What searches only by this interface takes columns and groups.

    Attributes
    ----------
    columns_of : Objective
        The objective over single columns.
    groups : list of arrays, or None
        The local columns of each group; None where the items are columns.
    included_size : int
        How many other items are always chosen.
    """

    @property
    def n(self) -> int: ...
    @property
    def c(self) -> float: ...
    @property
    def total(self) -> float: ...
    @property
    def has_gram(self) -> bool:
        """Whether all of K is in memory. If not, rows must be fetched before they are used."""

    @property
    def groups(self) -> list[Ints] | None: ...
    @property
    def columns_of(self) -> Objective: ...
    @property
    def included_size(self) -> int: ...

    def value(self, S: Iterable[int]) -> float:
        """Return f(S)."""

    def subset(self, limit: int) -> ItemState:
        """Return an empty subset of at most `limit` items that changes by one item at a time."""

    def members(self, S: Iterable[int]) -> tuple[int, ...]:
        """Return the local columns of some items: ascending ones of groups, and single ones as they are."""

    def within(self, columns: Iterable[int]) -> list[int]:
        """Return the items of some local columns."""

    def in_data(self, S: Iterable[int]) -> list[int]:
        """Return indices in the data: those of the included columns, then those of S.

        Parameters
        ----------
        S : iterable of int
            Items of the objective: local columns, or groups of them.

        Returns
        -------
        list of int
            Columns of the data.
        """

    def most_columns(self, k: int) -> int:
        """Return how many independent columns k items can have."""

    def without_dependent(self, S: Iterable[int]) -> tuple[int, ...]:
        """Return the ascending items of S without columns that depend on those before them."""

    def rank(self, S: Iterable[int]) -> int:
        """Return the number of items of S if each adds something to the others, and less if any adds nothing."""


class Objective(ItemObjective, Protocol):
    """Error f(S) of subsets S of n candidate columns, which are given as local indices 0 to n - 1.

    `DenseObjective` holds K and M as matrices. `OnDemandObjective` fetches rows of them when a search needs them.
    A search asks for rows with `fetch_rows` before it inserts a column; with a dense objective that does nothing.

    Attributes
    ----------
    n : int
        Number of candidate columns.
    K : (n, n) array
        Gram matrix X'X.
    M : (n, n) array
        Cross-moments B B', or K^2 where Y = X.
    cross : (n, N) array or None
        B = X'Y; None where Y = X or only M is known.
    moments : (n, n) array or None
        M, where it does not follow from K and cross.
    target_gram : (N, N) array or None
        Y'Y of what the included columns leave of the targets, loaded when it is first asked for; None without access.
    c : float
        f of the empty set: ||Y||_F^2 less what the included columns explain.
    lam : float
        Ridge penalty, >= 0.
    total : float
        ||Y||_F^2 of the data, to which differences of f are compared.
    columns : (n,) array
        Indices of the candidates in the data.
    included : tuple of int
        Indices in the data of columns that are always chosen. Their part is removed from K, B and c.
    scale : (n,) array
        Squared norm of each column plus lam, before the included columns were removed.
    tolerance : float
        A subset is dependent if the others leave at most this share of a column's `scale`; see `dsel._lib.tolerances`.
    centering : CenteringError
        How far the rounding of means may change the inner products.

    Notes
    -----
    `few_targets` is N where the targets are few enough to be kept one by one (`FEW_TARGETS`), and 0 where only M is
    used. The compiled kernels have one form for each.
    """

    @property
    def K(self) -> Floats: ...
    @property
    def M(self) -> Floats: ...
    @property
    def cross(self) -> Floats | None: ...
    @property
    def moments(self) -> Floats | None: ...
    @property
    def target_gram(self) -> Floats | None: ...
    @property
    def lam(self) -> float: ...
    @property
    def columns(self) -> Ints: ...
    @property
    def included(self) -> tuple[int, ...]: ...
    @property
    def scale(self) -> Floats: ...
    @property
    def tolerance(self) -> float: ...
    @property
    def centering(self) -> CenteringError: ...

    @property
    def groups(self) -> None: ...
    @property
    def few_targets(self) -> int:
        """N where targets are kept one by one, 0 where only M is used."""

    @property
    def floor(self) -> Floats:
        """(n,) array: a subset in which the others leave at most this of a column's square is dependent."""

    @property
    def diagonal(self) -> Floats:
        """(n,) diagonal of K."""

    @property
    def moment_diagonal(self) -> Floats:
        """(n,) diagonal of M."""

    @property
    def eigen_factor(self) -> tuple[Floats, Floats, Floats] | None:
        """W (r, n), D (r_y,) and P (r_y, r) of eq. (8) of Wan and Schweitzer, if the objective was made from them.

        Then K = W'W, M = (PW)'(PW), and D has the eigenvalues of PP', descending.
        """

    @property
    def max_entries(self) -> int:
        """Number of single entries of K to ask for in one call of `entries`."""

    @property
    def fetch_cost(self) -> int:
        """Numbers read to fetch one batch of rows; 0 where all of K is in memory."""

    def value(self, S: Iterable[int]) -> float:
        """Compute f(S).

        A column that would make the columns before it (of lower index) dependent explains nothing. O(s^3) for s
        columns.

        Parameters
        ----------
        S : iterable of int
            Local columns, in any order: the bits of the result do not depend on it.

        Returns
        -------
        float
            f(S), in units of ||Y||^2.
        """

    def rank(self, S: Iterable[int]) -> int:
        """Count the independent columns in S.

        Parameters
        ----------
        S : iterable of int
            Local columns.

        Returns
        -------
        int
            At most the number of distinct columns in S.
        """

    def value_and_rank(self, S: Iterable[int]) -> tuple[float, int]:
        """Return f(S), and the number of independent columns in S, at the cost of one of them.

        Parameters
        ----------
        S : iterable of int
            Local columns.

        Returns
        -------
        tuple of float and int
            As `value` and `rank` return them.
        """

    def rows(self, S: Sequence[int] | Ints) -> Floats:
        """Return rows of K, which must have been fetched.

        Parameters
        ----------
        S : (s,) sequence of int
            Local columns.

        Returns
        -------
        (s, n) array
            The rows, in the order of S.
        """

    def moment_rows(self, S: Sequence[int] | Ints) -> Floats:
        """Return rows of M, which must have been fetched.

        Parameters
        ----------
        S : (s,) sequence of int
            Local columns.

        Returns
        -------
        (s, n) array
            The rows, in the order of S.
        """

    def entries(self, J: Ints, L: Ints) -> Floats:
        """Return single entries of K and M, whether or not their rows were fetched.

        Parameters
        ----------
        J, L : (pairs,) array
            Local columns.

        Returns
        -------
        (2, pairs) array
            K_jl, and M_jl where M is used.
        """

    def fetch_rows(self, S: Iterable[int], likely: Callable[[], Ints] | None = None) -> None:
        """Fetch those rows of K (and M) of the columns S that are missing.

        Parameters
        ----------
        S : iterable of int
            Local columns.
        likely : callable, optional
            Returns columns that may be needed next, the likeliest first. They fill up the last batch.
        """

    def subset_tables(self, s_max: int, slots: int) -> KernelArrays[SubsetTables]:
        """Allocate tables of several subsets for the compiled kernels.

        Parameters
        ----------
        s_max : int
            Largest number of columns of a subset.
        slots : int
            Number of subsets.

        Returns
        -------
        KernelArrays
            Arrays of the layout `dsel.objective.kernels.layout`. They must outlive every call that uses their block.
        """

    def restrict(self, allowed: ArrayLike) -> Objective:
        """Return the objective over some of the columns.

        Parameters
        ----------
        allowed : (n_allowed,) array_like of int
            Local columns to keep; `columns` of the result still names them in the data.

        Returns
        -------
        Objective
            With local indices 0 to n_allowed - 1.
        """

    def condition(self, include: Sequence[int]) -> Objective:
        """Return the objective of what to add to columns that are always chosen.

        Parameters
        ----------
        include : sequence of int
            Local columns.

        Returns
        -------
        Objective
            f'(S) = f(include + S) over the other columns, with local indices in their order.

        Raises
        ------
        OptionError
            If the included columns depend on each other.

        Notes
        -----
        The part of the included columns is removed once (a Schur complement). Every method then searches the other
        columns as usual.
        """

    def counts(self) -> dict[str, int]:
        """Return what was read on demand.

        Returns
        -------
        dict
            Counts by name; empty where all of K is in memory.
        """
