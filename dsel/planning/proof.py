"""A proof that follows a selection: how it holds the Gram matrix, the memory that this takes, and whether it has a log.

The plan of a job and the proof itself decide by the same rules.
"""

from __future__ import annotations

from collections.abc import Iterator

from dsel._lib.byte_sizes import format_bytes
from dsel._lib.text import counted
from dsel.config.job import ProofLimits
from dsel.objective.objective_interface import MOST_DENSE, MOST_DENSE_IN_BOX, MOST_DENSE_LIMITED
from dsel.passes.statistics_cache import StatisticsCache
from dsel.planning.representations import memory
from dsel.planning.representations.choice import choose_for_proof, gram_proves_nothing
from dsel.planning.representations.gram import GramMatrix, TiledGram
from dsel.planning.representations.representation import ProblemShape, Representation, Resources
from dsel.planning.validation import ValidatedRequest
from dsel.search.method import Requirements


class PlannedProof:
    """What a proof about a selection will take.

    Parameters
    ----------
    validated : ValidatedRequest
        The data and the request.
    limits : ProofLimits
        What the proof is about.
    resources : Resources
        Workers and memory.
    cache : StatisticsCache, optional
        Where the Gram matrix may be saved.
    lists : bool
        Whether near-best subsets are listed.

    Attributes
    ----------
    representation : Representation
        How the proof holds the Gram matrix.

    Raises
    ------
    CapacityError
        If no representation can be used.
    """

    def __init__(
        self, validated: ValidatedRequest, limits: ProofLimits, resources: Resources,
        cache: StatisticsCache | None = None, *, lists: bool = False,
    ) -> None:  # fmt: skip
        dataset, request = validated.dataset, validated.request
        shape = ProblemShape.of(dataset, request.limit, Requirements(whole_gram=validated.groups is not None))
        self._validated, self._limits, self._lists = validated, limits, lists
        self._gram = GramMatrix(shape, resources)
        self._saved = cache is not None and self._gram.saved(validated, cache).statistics
        by_passes = limits.largest_coefficient is not None and shape.n > MOST_DENSE_IN_BOX
        if limits.coefficient_limit is not None:
            by_passes = request.lam == 0.0 or shape.n > MOST_DENSE_LIMITED
        self._relaxable = shape.N == 1 and (request.lam > 0.0 or limits.limit is not None)
        to_choose = 1 if limits.sizes == "all" else request.limit - validated.included
        in_passes = not lists and (self._relaxable or gram_proves_nothing(shape, request.lam, to_choose))
        chosen = choose_for_proof(
            shape, resources, saved=self._saved, quick_passes=by_passes and dataset.in_memory, in_passes=in_passes
        )
        tiled = TiledGram(shape, resources)
        if self._needs_gram and not chosen.holds_gram and shape.n <= MOST_DENSE and not tiled.obstacle:
            chosen = tiled
        self.representation: Representation = chosen

    @property
    def _needs_gram(self) -> bool:
        """Return whether a log or a list is asked for, which only proofs with the Gram matrix have."""
        return (self._limits.log or self._lists) and self._validated.groups is None and self._validated.loss is None

    @property
    def worker_bytes(self) -> int:
        """Return the memory limit that a worker needs: for the Gram matrix, and for compiled code of the search."""
        chosen = self.representation
        return max(chosen.worker_bytes, chosen.worker_limit(memory.COMPILED) if chosen.holds_gram else 0)

    @property
    def lacks(self) -> tuple[str, str]:
        """Return why the log or the list that is asked for cannot be made, and what would help; empty if it can."""
        resources, n = self._gram.resources, self._gram.shape.n
        if self.representation.holds_gram or not self._needs_gram:
            return "", ""
        asked = f"log is asked for, and a proof about {n} columns has none"
        asked = f"near-best subsets of {n} columns are not listed" if self._lists else asked
        tiled = TiledGram(self._gram.shape, resources)
        shortage, needed = self._gram.shortage, min(self._gram.worker_bytes, tiled.worker_bytes)
        why = f"their Gram matrix does not fit. {shortage}" if shortage else "the proof makes passes over the data."
        without = "leave the log out" if self._limits.log else "leave the list out"
        remedy = f"Use a machine with more memory, or {without}." if shortage else f"{without.capitalize()}."
        if shortage and resources.worker_memory is not None and needed > resources.worker_memory:
            remedy = f"Give each worker at least {format_bytes(needed, up=True)}, or {without}."
        return f"certify: {asked}: {why}", remedy

    def notes(self, selected: Representation) -> Iterator[str]:
        """Yield what the proof reads. selected: the representation of the selection."""
        chosen = self.representation
        if not chosen.holds_gram:
            why = "does not fit" if self._gram.shortage else "is large"
            what = "makes passes over the data" if self._relaxable else "proves little without one target and lam > 0"
            what = what if self._gram.shape.N else "proves what eigenvalues tell"
            yield f"the proof is about columns whose Gram matrix {why}: it {what}"
        elif self._validated.loss is not None:
            yield "the proof reads the columns that may be chosen, in one more pass where they fit in memory"
        elif selected.holds_gram or self._saved:
            yield "the proof reads no data, unless it finds a better subset: then one more pass"
        else:
            passes = counted(chosen.passes, "pass", "passes")
            yield f"the proof takes {passes} for the Gram matrix, and one more if it finds a better subset"
