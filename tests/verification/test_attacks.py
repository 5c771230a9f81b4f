"""Whoever writes a result cannot make `dsel verify` accept a false claim.

The data have 18 columns, of which 5 are chosen. The lie of most attacks is that columns 0 to 4 are the best there are.
Each attack is rejected, or it is harmless: what the check then reports is true.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import pytest

import dsel
from dsel.data.ingest import ingest_arrays
from dsel.errors import DataError
from tests.verification.logs import (
    COMPARED,
    CORES,
    DEPENDENT,
    DROPPED,
    END,
    PRUNED,
    LogFolder,
    certified_run,
    noisy,
)

N_COLUMNS, K = 18, 5
X, Y = noisy(6, 60, N_COLUMNS, 2)
A, B = ((Z - Z.mean(axis=0)) / Z.std(axis=0) for Z in (X, Y))
TOTAL = float(np.square(B).sum())
#: The segment that begins with the whole tree.
ROOT = [1, 0, N_COLUMNS, *range(N_COLUMNS)]


def error_of(columns):
    part = A[:, list(columns)]
    return float(np.square(B - part @ np.linalg.lstsq(part, B, rcond=None)[0]).sum())


FALSE = list(range(K))
FALSE_ERROR = error_of(FALSE)


@dataclass
class Forged:
    """A copy of a true result, which an attack changes."""

    log: LogFolder

    @property
    def folder(self):
        return self.log.folder.parent

    @property
    def manifest(self):
        return self.log.manifest

    def lie(self):
        """Claim in the manifest and in the result that other columns are the best."""
        self.manifest.update(bound=FALSE_ERROR, value=FALSE_ERROR, indices=FALSE)
        self.certify(bound=FALSE_ERROR, value=FALSE_ERROR, indices=FALSE)

    def certify(self, **claim):
        selection = dsel.open_selection(self.folder)
        certificate = ({**selection.certificate[-1], **claim},)
        replace(selection, certificate=certificate).save(self.folder, overwrite=True)

    def write(self, numbers, bounds=()):
        """Replace the content of the log, and lie."""
        self.lie()
        self.log.numbers, self.log.bounds = list(numbers), list(bounds)

    def bounds(self, change):
        self.log.bounds = change(np.array(self.log.bounds)).tolist()

    def drop_column(self, j):
        self.manifest["columns"].remove(j)
        self.manifest["n"] -= 1

    def forge_progress(self):
        """Write what releases before this one saved in the log's folder: that all files are checked."""
        self.write([])
        self.log.save()
        text = json.dumps([self.manifest, "1e-09 None"], sort_keys=True)
        state = {
            "key": hashlib.sha256(text.encode()).hexdigest(), "done": len(self.manifest["files"]), "nodes": 218,
            "checked": 252, "ridge": 0.0, "leaves": {"bound": 252}, "failures": [],
            "leaves_of_files": [252] * len(self.manifest["files"]), "open": [[[], hex((1 << N_COLUMNS) - 1), -1]],
        }  # fmt: skip
        (self.log.folder / "progress.json").write_text(json.dumps(state))

    def relax(self, bound):
        claim = {"bound": bound, "d": [0.5] * N_COLUMNS, "z": [0.1] * N_COLUMNS}
        self.manifest["relaxation"] = claim


HARMLESS = "harmless"
SHARE = FALSE_ERROR / TOTAL  # bounds in the log are shares of the error of no columns
BETTER = [j for j in range(N_COLUMNS) if j not in FALSE]
ATTACKS = {
    "nothing is changed": (lambda r: None, HARMLESS),
    "the claim is a lie": (Forged.lie, "the bound is"),
    "the saved progress is forged": (Forged.forge_progress, "no segment continues it"),
    "the whole tree is closed by a bound": (lambda r: r.write([*ROOT, PRUNED, END], [SHARE]), "the log says that f is"),
    "the whole tree is compared": (lambda r: r.write([*ROOT, COMPARED, END]), "too many to compare all"),
    "no columns are called dependent": (lambda r: r.write([*ROOT, DEPENDENT, END]), "are not dependent"),
    "the good columns are called dependent": (
        lambda r: r.write([*ROOT, DROPPED, len(BETTER), *BETTER, PRUNED, END], [SHARE]), "are not dependent"),
    "more cores than columns": (
        lambda r: r.write([*ROOT, CORES, K + 1, *np.ravel([(1, c) for c in range(K + 1)]), END], [SHARE] * (K + 1)),
        "the log says that f is"),
    "the log is empty": (lambda r: r.write([]), "no segment continues it"),
    "the tree ends where it begins": (lambda r: r.write([*ROOT, END]), "no segment continues it"),
    "the numbers are cut": (
        lambda r: setattr(r.log, "numbers", [*r.log.numbers[:-3], END]), "impossible node|ends within|no segment"),
    "a bound is missing": (lambda r: r.log.bounds.pop(), "a bound is missing"),
    "the bounds are a little higher": (lambda r: r.bounds(lambda b: b + 1e-4), "the log says that f is"),
    "the bounds are not numbers": (lambda r: r.bounds(lambda b: b * np.nan), HARMLESS),
    "the bounds are infinite": (lambda r: r.bounds(lambda b: b + np.inf), "the log says that f is"),
    "the bounds say nothing": (lambda r: r.bounds(lambda b: b - np.inf), HARMLESS),
    "the claim is a millionth too high": (
        lambda r: r.manifest.update(bound=r.manifest["bound"] + 1e-6 * TOTAL), r"below \d"),
    "the claim is higher by less than the tolerance": (
        lambda r: r.manifest.update(bound=r.manifest["bound"] + 0.5e-9 * TOTAL), HARMLESS),
    "fewer columns": (lambda r: r.manifest.update(k=K - 1), "impossible|after its last node|too many|may be chosen"),
    "more columns": (lambda r: r.manifest.update(k=K + 1), "too many to compare all"),
    "the number of columns is not whole": (lambda r: r.manifest.update(k=K + 0.9), DataError),
    "the number of columns is true": (lambda r: r.manifest.update(k=True), DataError),
    "the number of columns is negative": (lambda r: r.manifest.update(k=-1), "impossible node"),
    "a column is left out": (lambda r: r.drop_column(5), r"leaves out columns \[5\]"),
    "two columns are exchanged": (
        lambda r: r.manifest.update(columns=[0, 1, 2, 3, 4, 6, 5, *range(7, N_COLUMNS)]), "leaf"),
    "a column is included": (lambda r: r.manifest.update(included=[5]), r"includes \[5\]|are included"),
    "the penalty is another one": (lambda r: r.manifest.update(lam=0.1), "lam is 0.1"),
    "a file is there twice": (
        lambda r: r.manifest["files"].append(r.manifest["files"][0]), "no segment leaves it open"),
    "no file is named": (lambda r: r.manifest.update(files=[]), "no segment continues it"),
    "a file of another folder is named": (lambda r: r.manifest.update(files=["../000000.npz"]), DataError),
    "the relaxation is forged": (lambda r: r.relax(FALSE_ERROR), "relaxation: the bound is"),
    "the bound of the relaxation is not a number": (lambda r: r.relax(float("nan")), DataError),
    "the relaxation has no weights": (lambda r: r.manifest.update(relaxation={"bound": 1.0}), DataError),
    "the best error is lower than it is": (lambda r: r.manifest.update(value=1.0), "their error is"),
    "the squared norm is huge": (lambda r: r.manifest.update(total=1e12), HARMLESS),
    "the manifest names a tolerance": (lambda r: r.manifest.update(tolerance=0.5), HARMLESS),
    "the certificate names a huge norm": (
        lambda r: r.certify(bound=FALSE_ERROR, total=1e300), "has no valid log"),
    "the log is about subsets of more columns": (lambda r: r.certify(size=K + 1), "has no valid log"),
}  # fmt: skip


@pytest.fixture(scope="module")
def proved(tmp_path_factory):
    """A result with the log of a finished proof."""
    return certified_run(tmp_path_factory.mktemp("proved"), X, Y, K)


@pytest.fixture(scope="module")
def best():
    """The least error of 5 columns, by trying all 8568 subsets."""
    return min(map(error_of, combinations(range(N_COLUMNS), K)))


@pytest.fixture
def result(proved, tmp_path):
    shutil.copytree(proved, tmp_path / "result")
    return Forged(LogFolder(tmp_path / "result" / f"proof-log-{K}"))


@pytest.mark.parametrize(("attack", "outcome"), ATTACKS.values(), ids=ATTACKS)
def test_an_attack_is_rejected_or_harmless(result, best, attack, outcome):
    attack(result)
    result.log.save()
    if outcome is DataError:
        with pytest.raises(DataError, match="is damaged"):
            dsel.verify(result.folder)
        return
    found = dsel.verify(result.folder)
    (check,) = found.checks
    assert check.bound <= best + check.error * TOTAL or not check.accepted
    if outcome == HARMLESS:
        assert found.accepted, str(found)
        assert check.value == pytest.approx(best, rel=1e-12)
    else:
        assert not found.accepted
        assert re.search(outcome, str(found)), str(found)


@pytest.mark.parametrize("sample", [None, 5])
def test_other_data_are_not_those_of_the_proof(result, tmp_path, sample):
    other = X.copy()
    other[:, 0] = Y[:, 0] + 0.5 * np.random.default_rng(0).standard_normal(len(X))
    ingest_arrays(other, tmp_path / "other", y=Y)
    assert not dsel.verify(result.folder, store=tmp_path / "other", sample=sample).accepted


def test_a_log_about_columns_proves_nothing_about_groups_of_them(result):
    file = result.folder / "job.json"
    values = json.loads(file.read_text())
    values["job"]["groups"] = {"a": list(range(9)), "b": list(range(9, N_COLUMNS))}
    del values["digest"]  # as an older version wrote it
    file.write_text(json.dumps(values))
    found = dsel.verify(result.folder)
    assert found.verdict == "rejected"
    assert "the log is not about the groups or columns of the request" in str(found)


def test_nobody_can_predict_which_leaves_a_sample_has(result):
    seeds = {dsel.verify(result.folder, sample=5).checks[0].seed for _ in range(4)}
    assert len(seeds) == 4
    check = dsel.verify(result.folder, sample=5, seed=7).checks[0]
    assert check.seed == 7
    assert "seed 7" in str(check)
    assert dsel.verify(result.folder).checks[0].seed is None


def test_a_seed_repeats_a_sample(result):
    """One leaf is false. Some seeds find it, and each seed does always or never."""
    record = result.log.records(PRUNED)[0]
    result.log.bounds[record.bound] += 0.5
    result.log.save()

    def accepted(seed):
        return dsel.verify(result.folder, sample=40, seed=seed).accepted

    verdicts = [accepted(seed) for seed in range(12)]
    assert set(verdicts) == {True, False}
    assert verdicts == [accepted(seed) for seed in range(12)]
    assert not dsel.verify(result.folder).accepted
