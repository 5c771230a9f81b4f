"""Sums of rows that no one may pool: the selection, its proof and its check, and what is refused."""

from __future__ import annotations

import itertools
import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dsel
from dsel.api.run_select import select_from
from dsel.config.request import SelectionRequest
from dsel.data.as_dataset import as_dataset
from dsel.errors import DataError, DselError, MissingInputError, OptionError, OutputError
from dsel.passes.sums import Sums
from dsel.selection.results.check_part import add_shares, read_share
from tests.cli_runner import call
from tests.stores import append_rows, make_store, regression

X, Y = regression()
X = X + np.arange(24)  # means that are not 0
EDGES = [0, 40, 110, 170, 220, 300, 350, 420, 480, 530, 600]
WEIGHTS = np.random.default_rng(1).uniform(0.5, 2.0, 600)


def parts(weights: Any = None) -> list[Sums]:
    """The sums of ten parts."""
    return [
        dsel.sums(X[a:b], Y[a:b], sample_weight=None if weights is None else weights[a:b])
        for a, b in itertools.pairwise(EDGES)
    ]


TEN = parts()


@pytest.mark.parametrize(
    "how",
    [
        {}, {"method": "forward", "lam": 3.0}, {"method": "exchange", "preprocess": "center"},
        {"method": "branch-and-bound", "preprocess": "none"}, {"method": "omp", "preprocess": "unit"},
        {"include": [4], "exclude": [5]}, {"method": "forward", "groups": [[0, 1, 2], [5, 6]]},
        {"k": "auto", "choose_k": "bic", "method": "forward"}, {"method": "portfolio", "seconds": 1.0},
    ],
)  # fmt: skip
def test_ten_parts_give_the_same_answer_as_all_rows(how: dict[str, Any]) -> None:
    how = {"k": 6, **how}
    rows, found = dsel.select(X, Y, **how), dsel.select(dsel.open_sums(*TEN), **how)
    assert sorted(found.indices) == sorted(rows.indices)
    assert found.r2 == pytest.approx(rows.r2, abs=1e-12)
    assert found.error == pytest.approx(rows.error, rel=1e-10)
    assert found.coefficients == pytest.approx(rows.coefficients, rel=1e-9)
    assert found.intercept == pytest.approx(rows.intercept, rel=1e-9)
    assert found.shape == rows.shape
    assert found.passes == found.bytes_read == 0
    assert found.plan is not None
    assert found.plan["representation"] == "sums"
    assert found.statistics is not None
    assert rows.statistics is not None
    assert found.statistics.gains == pytest.approx(rows.statistics.gains, abs=1e-10)
    assert found.statistics.correlation == pytest.approx(rows.statistics.correlation, abs=1e-10)
    assert any("10 parts" in note and "not checked on rows" in note for note in found.notes)


def test_weights_several_targets_and_no_targets() -> None:
    weighted = dsel.from_sums(*parts(WEIGHTS), k=4, method="forward")
    assert weighted.r2 == pytest.approx(dsel.select(X, Y, k=4, method="forward", sample_weight=WEIGHTS).r2, abs=1e-12)
    two = np.column_stack([Y[:, 0], X[:, 3] + Y[:, 0] / 2])
    of_two = dsel.from_sums(dsel.sums(X[:200], two[:200]), dsel.sums(X[200:], two[200:]), k=4, method="forward")
    assert of_two.r2 == pytest.approx(dsel.select(X, two, k=4, method="forward").r2, abs=1e-12)
    of_none = dsel.from_sums(dsel.sums(X[:200]), dsel.sums(X[200:]), k=4, method="forward")
    rows = dsel.select(X, k=4, method="forward")
    assert of_none.indices == rows.indices
    assert of_none.r2 == pytest.approx(rows.r2, abs=1e-12)
    assert of_none.coefficients == pytest.approx(rows.coefficients, abs=1e-9)


def test_the_order_of_parts_gives_the_bits_of_a_store_with_these_segments(tmp_path: Path) -> None:
    store = make_store(tmp_path / "whole.zarr", X[:200], Y[:200], chunks=(50, 24))
    append_rows(store, X[:350], Y[:350])
    append_rows(store, X, Y)
    files = []
    for i, (a, b) in enumerate(((0, 200), (200, 350), (350, 600))):
        part = make_store(tmp_path / f"{i}.zarr", X[a:b], Y[a:b], chunks=(50, 24))
        files.append(dsel.sums(part).save(tmp_path / f"{i}.sums"))
    assert files[0].stat().st_size < 30_000
    whole, found = dsel.select(store, k=6, seed=3), dsel.from_sums(*files, k=6, seed=3)
    assert [(row.size, row.error, row.indices) for row in found.front] == [
        (row.size, row.error, row.indices) for row in whole.front
    ]
    assert found.trace == whole.trace
    assert found.r2 == pytest.approx(whole.r2, abs=1e-12)
    again = dsel.from_sums(*map(str, files), k=6, seed=3)
    assert (again.r2, again.error, again.coefficients.tobytes()) == (
        found.r2,
        found.error,
        found.coefficients.tobytes(),
    )
    assert again.fingerprint == found.fingerprint
    assert dsel.from_sums(*files[::-1], k=6, seed=3).fingerprint != found.fingerprint


def test_saved_statistics_of_a_store_are_used(tmp_path: Path) -> None:
    from dsel.passes.data_pass import log_passes
    from dsel.passes.statistics_cache import StatisticsCache

    store = make_store(tmp_path / "a.zarr", X, Y, chunks=(100, 24))
    select_from(as_dataset(store), SelectionRequest(k=3, method="omp"), StatisticsCache(tmp_path / "a.zarr.artefacts"))
    with log_passes() as made:
        dsel.sums(store)
    assert made.passes == 0


def test_a_file_has_no_extreme_values_but_keeps_constant_columns(tmp_path: Path) -> None:
    Z = X.copy()
    Z[:, 4] = 7.0
    Z[:200, 5] = 3.0
    a, b = dsel.sums(Z[:200], Y[:200]), dsel.sums(Z[200:], Y[200:])
    moments = dsel.open_sums(a.save(tmp_path / "a.sums")).moments
    varies = np.setdiff1d(np.arange(24), [4, 5])
    assert not np.isin(moments.low_x[varies], Z).any()
    assert not np.isin(moments.high_x[varies], Z).any()
    found = dsel.from_sums(a, b, k=5, method="forward")
    assert found.constant == ("x4",)
    assert found.indices == dsel.select(Z, Y, k=5, method="forward").indices


def test_certificates_and_alternatives_need_no_rows() -> None:
    both = dsel.open_sums(*TEN)
    poor = dsel.select(both, k=3, method="random")
    proved, rows = dsel.certify(poor, both), dsel.certify(dsel.select(X, Y, k=3), X, Y)
    assert proved.certificate[0]["proven"]
    assert proved.certificate[0]["bound"] == pytest.approx(rows.certificate[0]["bound"], rel=1e-9)
    assert sorted(proved.indices) == sorted(rows.indices)
    assert dsel.from_sums(*TEN, k=3, proof_seconds=60).certificate[0]["proven"]
    listed = dsel.alternatives(proved, both, within=0.05)
    assert listed.verdicts == dsel.alternatives(rows, X, Y, within=0.05).verdicts


@pytest.mark.parametrize("centered", [False, True])
def test_arrays_from_anywhere(centered: bool) -> None:
    A, b = (X - X.mean(0), Y - Y.mean(0)) if centered else (X, Y)
    means = None if centered else (X.mean(0), Y.mean(0))
    found = dsel.from_sums(XtX=A.T @ A, Xty=A.T @ b[:, 0], yty=b.T @ b, m=600, means=means, k=6, method="forward")
    rows = dsel.select(X, Y, k=6, method="forward")
    assert found.indices == rows.indices
    assert found.r2 == pytest.approx(rows.r2, abs=1e-9)
    assert found.coefficients == pytest.approx(rows.coefficients, rel=1e-6)
    assert centered or found.intercept == pytest.approx(rows.intercept, rel=1e-6)


def test_the_certificate_counts_the_digits_that_products_about_zero_lose() -> None:
    far = X + 1e4
    raw = {"XtX": far.T @ far, "Xty": far.T @ Y, "yty": Y.T @ Y, "means": (far.mean(0), Y.mean(0))}
    bounds = [
        found.certificate[0]["bound"]
        for found in (
            dsel.from_sums(**raw, m=600, k=2, method="forward", proof_seconds=60),
            dsel.from_sums(dsel.sums(far, Y), k=2, method="forward", proof_seconds=60),
        )
    ]
    best = dsel.certify(dsel.select(X, Y, k=2), X, Y).error
    assert bounds[0] < bounds[1] <= best * (1 + 1e-9)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"XtX": np.ones((2, 3))}, "XtX"), ({"XtX": np.triu(X.T @ X)}, "symmetric"), ({"Xty": np.ones(3)}, "Xty"),
        ({"m": 0}, "m is 0"), ({"yty": np.nan}, "finite"), ({"means": (X.mean(0) * 30, Y.mean(0))}, "less than"),
        ({"Xty": X.T @ Y * 1e4}, "above those"), ({"features": ["a"]}, "labels"), ({"yty": None}, "belong together"),
    ],
)  # fmt: skip
def test_arrays_that_are_no_sums_are_refused(change: dict[str, Any], what: str) -> None:
    given = {"XtX": X.T @ X, "Xty": X.T @ Y, "yty": Y.T @ Y, "m": 600, **change}
    with pytest.raises(DataError, match=what):
        dsel.from_sums(k=3, **given)


@pytest.mark.parametrize(
    ("how", "what"),
    [
        ({"method": "greedy-rls"}, "greedy-rls needs the rows"), ({"method": "kfold"}, "kfold needs the rows"),
        ({"k": "auto"}, "by folds needs the rows"), ({"criterion": len}, "criterion needs the rows"),
        ({"k": "auto", "choose_k": {"held_out": 0.2}}, "by held-out needs the rows"),
        ({"reduce": {"rank": 5}}, "reduce needs"),
        ({"missing": "mean"}, "no missing values"), ({"targets": ["y"]}, "targets next to parts.*at each site"),
        ({"rows": {"last": 1}}, "store"),
        ({"sample_weight": WEIGHTS}, "own targets and weights"), ({"XtX": X}, "XtX next to parts"),
        ({"loss": "multinomial"}, "sums have the squared error only"),
    ],
)  # fmt: skip
def test_what_needs_rows_is_refused_with_the_remedy(how: dict[str, Any], what: str) -> None:
    with pytest.raises(OptionError, match=what) as caught:
        dsel.from_sums(*TEN, **{"k": 3, "method": "poss", **how})
    assert caught.value.remedy


def test_stability_and_eigendecomposition_need_rows() -> None:
    both = dsel.open_sums(*TEN)
    for call_with in (lambda: dsel.stability(both, k=3), lambda: dsel.eigh(both, rank=3)):
        with pytest.raises(OptionError):
            call_with()


def other(**columns: Any) -> Sums:
    import pandas as pd

    return dsel.sums(pd.DataFrame(X[:100], columns=columns["columns"]), Y[:100])


def test_parts_that_do_not_fit_together_are_refused(tmp_path: Path) -> None:
    a = TEN[0]
    names = [f"x{j}" for j in range(24)]
    two = np.column_stack([Y, Y])[:100]
    refused: list[tuple[list[Any], str]] = [
        ([a, TEN[1], a], r"X \(part 1\) and X \(part 3\) hold the same rows"),
        ([dsel.open_sums(a, TEN[1]), TEN[1]], "same rows"),
        ([a, other(columns=[*names[:-1], "z"])], "other columns: only the first has x23, only the second z"),
        ([a, other(columns=names[::-1])], "another order"), ([a, dsel.sums(X[40:99], two[40:99])], "other targets"),
        ([a, dsel.sums(X[40:99])], "other targets"),
        ([a, dsel.sums(X[40:99], Y[40:99], sample_weight=WEIGHTS[40:99])], "no weights.*weights of dtype float64"),
        ([dsel.sums(X[40:99], Y[40:99], sample_weight=WEIGHTS[40:99].astype(kind)) for kind in ("f4", "f8")], "dtype"),
    ]  # fmt: skip
    for given, what in refused:
        with pytest.raises(DataError, match=what) as caught:
            dsel.open_sums(*given)
        assert caught.value.remedy
    with pytest.raises(DataError, match="550 rows together, and m is 600"):
        dsel.from_sums(*TEN[:3], *TEN[4:], m=600, k=3)
    with pytest.raises(OptionError, match="no sums"):
        dsel.from_sums(k=3)
    with pytest.raises(MissingInputError, match=r"no file .*b\.sums"):
        dsel.from_sums(a, tmp_path / "b.sums", k=3)


def test_rows_of_the_same_segment_are_refused(tmp_path: Path) -> None:
    store = make_store(tmp_path / "a.zarr", X[:300], Y[:300])
    before = dsel.sums(store)
    append_rows(store, X, Y)
    with pytest.raises(DataError, match="same segment"):
        dsel.open_sums(before, dsel.sums(store))


def test_missing_values_are_refused() -> None:
    Z = X.copy()
    Z[3, 2] = np.nan
    with pytest.raises(DataError, match=r"x2.*same numbers at every site"):
        dsel.sums(Z, Y)


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    path = TEN[0].save(tmp_path / "a.sums")
    with pytest.raises(OutputError, match="exists"):
        TEN[0].save(path)
    whole = path.read_bytes()
    for place in range(100, len(whole), 397):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with suppress(DataError):  # padding and dates of the archive have no meaning
            assert dsel.open_sums(path)._check == TEN[0]._check
    for text in (b"", b"no archive", whole[: len(whole) // 2]):
        path.write_bytes(text)
        with pytest.raises(DataError, match=r"damaged.*Copy it again"):
            dsel.open_sums(path)


def test_a_changed_header_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.sums"
    TEN[0].save(path)
    with np.load(path) as found:
        arrays = {name: found[name] for name in found.files}
    header, structure = json.loads(arrays["header"].tobytes())
    header["features"][0] = "other"
    arrays["header"] = np.frombuffer(json.dumps([header, structure]).encode(), np.uint8)
    with path.open("wb") as file:
        np.savez(file, **arrays)
    with pytest.raises(DataError, match="digest differs"):
        dsel.open_sums(path)


@pytest.mark.parametrize("preprocess", ["standardize", "center", "unit", "none"])
def test_shares_add_up_to_the_error_of_the_selection(preprocess: Any, tmp_path: Path) -> None:
    two = np.column_stack([Y[:, 0], 10 * X[:, 3] + Y[:, 0]])
    edges = [(0, 200), (200, 600)]
    given = [dsel.sums(X[a:b], two[a:b], sample_weight=WEIGHTS[a:b]) for a, b in edges]
    selection = dsel.from_sums(*given, k=4, method="forward", preprocess=preprocess, lam=2.0)
    shares = [dsel.check_part(selection, X[a:b], two[a:b], sample_weight=WEIGHTS[a:b]) for a, b in edges]
    added = add_shares(selection, [read_share(shares[0].save(tmp_path / "a.share")), shares[1]])
    residuals = two - selection.intercept - X[:, selection.indices] @ selection.coefficients
    assert added.rss == pytest.approx((WEIGHTS @ residuals**2).tolist())
    assert added.agrees
    assert added.r2 == pytest.approx(selection.r2, abs=1e-10)
    for wrong, what in (
        (shares[:1], "200 rows together.*600.*no share has as many rows as"), ([shares[0], *shares], "the same rows"),
        ([replace(shares[0], selection="other"), shares[1]], "another selection"),
    ):  # fmt: skip
        with pytest.raises(DataError, match=what):
            add_shares(selection, wrong)
    changed = [shares[0], dsel.check_part(selection, X[200:], two[200:] + 1.0, sample_weight=WEIGHTS[200:])]
    assert not add_shares(selection, changed).agrees


def test_shares_need_the_targets_of_the_selection() -> None:
    with pytest.raises(DataError, match="lacks targets"):
        dsel.check_part(dsel.from_sums(*TEN, k=2), X)
    with pytest.raises(OptionError, match="no targets"):
        dsel.check_part(dsel.from_sums(dsel.sums(X), k=2), X)


def test_the_command_line(tmp_path: Path) -> None:
    files = []
    for name, rows in (("a", slice(0, 250)), ("b", slice(250, 600))):
        store = make_store(tmp_path / f"{name}.zarr", X[rows], Y[rows])
        files.append(tmp_path / f"{name}.sums")
        code, out, err = call("sums", store, "--out", files[-1])
        assert code == 0, err
        assert "It holds no row" in out
    assert call("sums", tmp_path / "a.zarr", "--out", files[0])[0] == OutputError.exit_code
    answer = tmp_path / "answer"
    code, out, err = call(
        "select", "--sums", *files, "--k", 6, "--method", "forward", "--certify", "20s", "--out", answer
    )
    assert code == 0, err
    assert "not checked on rows" in out
    assert f"Saved in {answer}" in out
    saved = dsel.open_selection(answer)
    assert saved.indices == dsel.select(X, Y, k=6, method="forward").indices
    assert saved.certificate[0]["proven"]
    for command in ("verify", "resume"):
        code, _, err = call(command, answer)
        assert code == MissingInputError.exit_code
        assert "its selection is from sums of rows" in err
        assert f"dsel certify {answer} proves it" in err
    shares = []
    for name in ("a", "b"):
        shares.append(tmp_path / f"{name}.share")
        code, out, err = call("check-part", answer, tmp_path / f"{name}.zarr", "--out", shares[-1])
        assert code == 0, err
        assert "residual sum of squares" in out
    code, out, err = call("check-part", answer, "--add", *shares)
    assert code == 0, err
    assert "they agree" in out
    assert json.loads(call("check-part", answer, "--add", *shares, "--json")[1])["rows"] == 600
    code, _, err = call("check-part", answer, "--add", shares[0])
    assert code == DataError.exit_code
    assert "remedy" in err
    code, _, err = call("select", *files, "--k", 3)
    assert code == OptionError.exit_code
    assert "--sums" in err
    code, _, err = call("select", "--sums", files[0], files[0], "--k", 3)
    assert code == DataError.exit_code
    assert "remedy: Give each part once" in err


@pytest.mark.usefixtures("no_pictures")
def test_an_answer_from_sums_is_proved_by_command(tmp_path: Path) -> None:
    files = [tmp_path / f"{i}.sums" for i in range(2)]
    for file, part in zip(files, (TEN[0], dsel.open_sums(*TEN[1:])), strict=True):
        part.save(file)
    answer = tmp_path / "answer"
    ask = ("select", "--sums", *files, "--k", 3, "--method", "forward", "--out", answer)
    assert call(*ask)[0] == 0
    code, _, err = call(*ask)
    assert (code, "(--overwrite)" in err) == (OutputError.exit_code, True)
    code, out, err = call("certify", answer, "--all-sizes")
    assert code == 0, err
    assert out.count("proved optimal") == 3
    assert f"dsel certify {answer}" not in dsel.report(answer).read_text()  # there is nothing left to prove
    moved = [file.rename(tmp_path / f"moved-{file.name}") for file in files]
    code, _, err = call("alternatives", answer)
    assert (code, "Name them after the folder" in err) == (MissingInputError.exit_code, True)
    code, out, err = call("alternatives", answer, *moved, "--within", "5%")
    assert code == 0, err
    both = dsel.open_sums(*moved)
    listed = dsel.alternatives(dsel.open_selection(answer), both, within=0.05)
    assert dsel.open_selection(answer).alternatives.as_dict()["subsets"] == listed.as_dict()["subsets"]
    code, _, err = call("certify", answer, *reversed(moved), "--log")
    assert (code, "Leave --log out" in err) == (OptionError.exit_code, True)


def test_errors_are_of_dsel() -> None:
    with pytest.raises(DselError, match="sums already"):
        dsel.sums(TEN[0])


def test_a_part_may_lack_values_of_a_category() -> None:
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"a": rng.normal(size=60), "city": np.repeat(["B", "K", "U"], 20)})
    y = 2.0 * (frame.city == "K") + frame.a + 0.1 * rng.normal(size=60)
    selection = dsel.select(frame, y, k=2)
    shares = [dsel.check_part(selection, frame[a : a + 30], y[a : a + 30]) for a in (0, 30)]
    rest = y - selection.predict(frame)
    assert sum(share.rss[0] for share in shares) == pytest.approx(float(rest @ rest))


def test_the_short_form_of_sums_counts_what_they_hold() -> None:
    both = dsel.open_sums(dsel.sums(X[:5, :2], X[:5, 2]), dsel.sums(X[5:9, :2], X[5:9, 2]))
    assert repr(both) == "<Sums of 2 parts: 9 rows, 2 columns, 1 target>"


def test_a_category_is_a_group_as_with_all_rows(tmp_path: Path) -> None:
    rng = np.random.default_rng(59)
    frame = pd.DataFrame(rng.normal(size=(100, 5)), columns=list("abcde"))
    frame["city"] = rng.choice(list("UVW"), 100)
    y = frame["a"] + (frame["city"] == "U") + 0.4 * frame["d"] + rng.normal(size=100)
    dsel.ingest(frame[:50], tmp_path / "a.zarr", y=y[:50], categorical="city")
    parts = {"a": dsel.sums(tmp_path / "a.zarr"), "b": dsel.sums(frame[50:], y[50:])}
    files = [part.save(tmp_path / f"{name}.sums") for name, part in parts.items()]
    rows, found = dsel.select(frame, y, k=2), dsel.from_sums(*files, k=2)
    assert found.groups == rows.groups == {"a": (0,), "city": (5, 6, 7)}
    assert found.r2 == pytest.approx(rows.r2, abs=1e-12)
    assert dsel.from_sums(*files, k=2, exclude=["city"]).labels == ["a", "d"]
    one_by_one = dsel.from_sums(*files, k=2, categories="columns")
    code, out, _ = call("select", "--sums", *files, "--k", 2, "--categories", "columns", "--json")
    assert (code, json.loads(out)["indices"]) == (0, [*one_by_one.indices])
    noisy = dsel.sums(tmp_path / "a.zarr", noise={"epsilon": 1.0, "delta": 1e-3, "bounds": {"*": 9.0}})
    assert noisy.categories is not None
    assert dsel.open_sums(noisy.save(tmp_path / "noisy.sums")).categories is not None


@pytest.mark.parametrize("lam", [0.0, 4.0])
@pytest.mark.parametrize(
    "how",
    [
        {"k": 3}, {"k": 2, "groups": {"money": ["a", "b", "total"]}}, {"k": 4, "include": ["a", "b", "total"]},
        {"k": 2, "groups": {"money": ["a", "b", "total"]}, "Y": None}, {"k": "auto", "choose_k": "bic"},
    ],
)  # fmt: skip
def test_columns_that_depend_on_others_have_the_fit_of_all_rows(how: dict[str, Any], lam: float) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(240, 4)), columns=list("abcd"))
    frame = frame.assign(total=frame.a + frame.b, city=rng.choice(["Bonn", "Kiel", "Ulm"], 240))
    y = {"Y": frame.a - frame.c + 1.5 * (frame.city == "Ulm") + rng.normal(size=240), **how}.pop("Y")
    how = {"lam": lam, **{name: value for name, value in how.items() if name != "Y"}}
    both = dsel.open_sums(*(dsel.sums(frame[a : a + 80], None if y is None else y[a : a + 80]) for a in (0, 80, 160)))
    rows, found = dsel.select(frame, y, **how), dsel.select(both, **how)
    assert found.groups == rows.groups
    assert (found.error, found.r2) == pytest.approx((rows.error, rows.r2), rel=1e-9)
    assert found.coefficients == pytest.approx(rows.coefficients, abs=1e-9)
    proved, proved_rows = dsel.certify(found, both), dsel.certify(rows, frame, y)
    assert proved.certificate[0]["bound"] == pytest.approx(proved_rows.certificate[0]["bound"], rel=1e-6)
    near = dsel.alternatives(proved, both, within=0.1), dsel.alternatives(proved_rows, frame, y, within=0.1)
    assert near[0].verdicts == near[1].verdicts


def test_a_note_says_where_sums_do_not_know_their_categories() -> None:
    names = {"features": ["a", "city=U", "city=V"], "targets": ["y"]}
    sums = {"XtX": X[:, :3].T @ X[:, :3], "Xty": X[:, :3].T @ Y[:, 0], "yty": Y[:, 0] @ Y[:, 0], "m": 600}
    note = "columns such as city=... are chosen one by one"
    assert any(one.startswith(note) for one in dsel.from_sums(**sums, **names, k=1).notes)
    by_groups = dsel.from_sums(**sums, **names, k=1, groups={"city": ["city=U", "city=V"]})
    assert not any(one.startswith(note) for one in by_groups.notes)
