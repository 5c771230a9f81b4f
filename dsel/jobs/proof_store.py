"""Save an unfinished proof in the folder of a run, and continue it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dsel._lib.damage import DamagedFileError, warn_of_damage
from dsel.errors import DselError
from dsel.objective.base import Objective
from dsel.search.anytime import AnytimeSearch, Deadline
from dsel.search.exact.common_setup import CommonSetup
from dsel.search.exact.proof import Proof
from dsel.search.exact.proof_log import ProofLog
from dsel.search.grouped.objective import GroupedObjective
from dsel.storage.json_files import read_json, write_json
from dsel.storage.paths import AnyPath

log = logging.getLogger("dsel")

#: A proof is not saved if its open nodes hold more numbers than this.
_MAX_NUMBERS = 20_000_000


@dataclass(frozen=True)
class ProofStore:
    """The file of the proof for one size.

    size: number of columns to choose, without included ones. path: the file; None: the proof is not saved. fingerprint:
    of the data. save_seconds: time between two saves while the proof runs. log: the folder of the proof log; None: the
    proof keeps none. coefficients: a limit for them, see `dsel.search.exact.wide.search.WideTree`. setup: what the
    proofs for other sizes share.
    """

    objective: Objective | GroupedObjective
    size: int
    path: AnyPath | None
    fingerprint: str | None
    save_seconds: float
    log: AnyPath | None = None
    coefficients: float | None = None
    setup: CommonSetup | None = None

    def _identity(self) -> dict[str, Any]:
        objective, groups = self.objective.columns_of, self.objective.groups
        grouped = {} if groups is None else {"groups": [group.tolist() for group in groups]}
        limit = {} if self.coefficients is None else {"coefficients": self.coefficients}
        return {
            **grouped, **limit,
            "fingerprint": self.fingerprint, "k": self.size, "n": objective.n, "c": objective.c, "lam": objective.lam,
            "columns": objective.columns.tolist(), "included": list(objective.included),
        }  # fmt: skip

    def open(self, incumbent: Sequence[int], seed: int, deadline: Deadline | None = None) -> Proof:
        """Return the saved proof if it is about the same subsets, else a new one, which begins before the deadline."""
        saved = read_json(self.path, lost="the proof starts again") if self.path is not None else None
        if self.log is not None and isinstance(saved, dict) and "log" not in saved:
            log.info("the proof in %s has no log and starts again", self.path)
            saved = None
        if isinstance(saved, dict) and saved.get("identity") == self._identity():
            try:
                proof = self._resume(saved, incumbent)
            except (LookupError, TypeError, ValueError, ArithmeticError, OSError, DselError) as error:
                of_log = isinstance(error, OSError | DamagedFileError)
                warn_of_damage(self.log if of_log else self.path, "the proof starts again", repr(error))
            else:
                log.info("continuing the proof in %s", self.path)
                return proof
        return Proof.begin(
            self.objective, self.size, incumbent, seed=seed, deadline=deadline or Deadline(None),
            log=self._continued_log({}), coefficient_limit=self.coefficients, setup=self.setup,
        )  # fmt: skip

    def _continued_log(self, saved: dict[str, Any]) -> ProofLog | None:
        if self.log is None:
            return None
        return ProofLog(self.log, self.objective.columns_of, self.size, int(saved.get("log", 0)))

    def _resume(self, saved: dict[str, Any], incumbent: Sequence[int]) -> Proof:
        proof_log = self._continued_log(saved)
        if proof_log is not None:
            proof_log.require_whole()
        return Proof.resume(self.objective, saved["proof"], incumbent, proof_log, self.setup)

    def save(self, proof: Proof) -> None:
        """Write the proof, unless it has no file or too many open nodes."""
        if self.path is None:
            return
        if proof.search.saved_numbers > _MAX_NUMBERS:
            log.info("the proof has too many open nodes to be saved; the next run starts it again")
            return
        values: dict[str, Any] = {"identity": self._identity(), "proof": proof.state()}
        if proof.log is not None:
            values["log"] = proof.log.flush()
        write_json(self.path, values)

    def saving(self, proof: Proof, on_slice: Callable[[AnytimeSearch], None] | None) -> Callable[[AnytimeSearch], None]:
        """Return a callback for each slice that saves the proof when it is time, then calls `on_slice`.

        A proof that makes passes over the data is saved after each one.
        """
        last, passes = time.monotonic(), proof.search.passes

        def save_and_call(search: AnytimeSearch) -> None:
            nonlocal last, passes
            made = getattr(search, "passes", 0)
            if made > passes or time.monotonic() - last >= self.save_seconds:
                self.save(proof)
                last, passes = time.monotonic(), made
            if on_slice is not None:
                on_slice(search)

        return save_and_call
