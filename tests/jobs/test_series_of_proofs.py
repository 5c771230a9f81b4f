"""Proofs of a series of runs: each continues from the tree of the run before, and begins again without one."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dsel
from dsel._lib.npz import pack_npz, read_npz
from dsel.config.job import JobFile
from dsel.jobs import proof_store
from dsel.jobs.runner import plan_job, run_job
from dsel.search.exact.carried_bound import CARRIED
from dsel.selection.changes.runs import SUMMARY, run_names
from dsel.selection.render import describe_changes
from dsel.selection.result import Selection
from tests.cli_runner import call

pytestmark = pytest.mark.usefixtures("no_workers")

#: With as many columns as this, the proof is by relaxations.
N, K, ROWS = 150, 6, 600
TREE = "tree-of-proof-6.npz"


def rows(seed: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((count, N))
    return X, (X[:, :7] @ np.linspace(0.2, 0.4, 7) + 1.8 * rng.standard_normal(count))[:, None]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    X, Y = rows(0, ROWS)
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "y.npy", Y)
    dsel.ingest(tmp_path / "x.npy", tmp_path / "data.zarr", y=tmp_path / "y.npy")
    return tmp_path


def append(folder: Path, seed: int) -> None:
    X, Y = rows(seed, 7)
    np.save(folder / "x.npy", X)
    np.save(folder / "y.npy", Y)
    dsel.append(folder / "x.npy", folder / "data.zarr", y=folder / "y.npy", again=True)


def job(folder: Path, out: Any = None, **keys: Any) -> JobFile:
    values = {
        "store": str(folder / "data.zarr"), "k": K, "out": out or {"folder": str(folder / "runs"), "keep": 5},
        "method": "exchange", "certify": {"nodes": 10**6}, "cluster": {"local": {"workers": 1, "memory": "1GiB"}},
    }  # fmt: skip
    return JobFile.model_validate({**values, **keys})


def proof(selection: Selection) -> dict[str, Any]:
    return next(row for row in selection.certificate if row["size"] == selection.k)


def last(folder: Path) -> Path:
    return (folder / "runs" / "latest").resolve()


def test_each_night_proves_what_a_run_from_the_beginning_proves(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    first = run_job(job(folder))
    assert proof(first)["leaves_checked"] == 0
    assert proof(first)["began_again"] == ""
    for night in (1, 2, 3):
        append(folder, night)
        found = run_job(job(folder))
        whole = run_job(job(folder, str(folder / f"whole-{night}")))
        assert found.indices == whole.indices
        assert (proof(found)["status"], proof(whole)["status"]) == ("optimal", "optimal")
        assert proof(found)["value"] == pytest.approx(proof(whole)["value"])
        assert proof(found)["bound"] <= proof(whole)["value"]
        assert proof(found)["began_again"] == ""
        assert proof(found)["leaves_checked"] >= proof(found)["leaves_searched"]
    line = f"{proof(found)['leaves_checked']:,} leaves checked, {proof(found)['leaves_searched']:,} searched"
    assert proof(found)["leaves_checked"] > 0
    assert found.changes is not None
    assert any(line in shown and "Still proved optimal" in shown for shown in describe_changes(found.changes))
    assert f"still proved optimal, R2 {found.r2:.6f} ({line}" in call("show", last(folder))[1]
    names = run_names(folder / "runs")
    trees = [name for name in names if (folder / "runs" / name / TREE).exists()]
    assert trees == names[-1:]  # the older ones are of no use any more


def test_without_a_tree_or_with_a_damaged_one_the_proof_begins_again_and_says_why(folder: Path) -> None:
    run_job(job(folder))
    (last(folder) / TREE).write_bytes(b"no archive")
    append(folder, 1)
    damaged = proof(run_job(job(folder)))
    assert damaged["began_again"] == "because the tree of the run before is damaged"
    (last(folder) / TREE).unlink()
    append(folder, 2)
    assert proof(run_job(job(folder)))["began_again"] == "because the run before left no tree of this size"
    assert (
        "\n  The proof began again, because the run before left no tree of this size.\n"
        in call("show", last(folder))[1]
    )
    append(folder, 3)
    again = proof(run_job(job(folder)))
    assert (again["began_again"], again["status"]) == ("", "optimal")


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ({"preprocess": "center"}, "another preprocessing"), ({"lam": 2.0}, "another penalty"),
        ({"exclude": [3]}, "another list of columns"), ({"k": 5}, "no tree"),
    ],
)  # fmt: skip
def test_the_tree_of_another_problem_is_refused(folder: Path, keys: dict[str, Any], why: str) -> None:
    run_job(job(folder))
    found = proof(run_job(job(folder, **keys)))
    assert why in found["began_again"]
    assert found["status"] == "optimal"


def test_a_tree_of_another_format_is_refused(folder: Path) -> None:
    run_job(job(folder))
    file = last(folder) / TREE
    saved = read_npz(io.BytesIO(file.read_bytes()))
    identity = json.loads(bytes(saved["identity"]))
    identity["format of trees"] = "of a later version"
    file.write_bytes(pack_npz({**saved, "identity": np.frombuffer(json.dumps(identity).encode(), np.uint8)}))
    append(folder, 1)
    assert proof(run_job(job(folder)))["began_again"] == "because the run before had another format of trees"


def test_arrays_that_do_not_fit_each_other_are_refused(folder: Path) -> None:
    run_job(job(folder))
    file = last(folder) / TREE
    saved = read_npz(io.BytesIO(file.read_bytes()))
    file.write_bytes(pack_npz({**saved, "support": saved["support"][:-1], "d": saved["d"][:-1]}))
    append(folder, 1)
    found = proof(run_job(job(folder)))
    assert (found["began_again"], found["status"]) == ("because the new data need another tree", "optimal")


def test_the_plan_says_how_many_bytes_are_kept(folder: Path) -> None:
    notes = plan_job(job(folder))[0].notes
    assert any("keeps the tree of each proof" in note and "64.00 MiB" in note for note in notes)


def test_a_log_of_each_night_is_verified_from_the_new_data_alone(folder: Path) -> None:
    log = {"certify": {"nodes": 10**6, "log": True}, "k": 2}
    run_job(job(folder, **log))
    append(folder, 1)
    found = run_job(job(folder, **log))
    assert proof(found)["status"] == "optimal"
    assert call("verify", last(folder))[0] == 0


def test_alternatives_continue_and_are_those_of_a_run_from_the_beginning(folder: Path) -> None:
    asked = {"certify": None, "alternatives": {"within": 0.03}}
    run_job(job(folder, **asked))
    assert (last(folder) / "tree-of-near-best-6.npz").exists()
    append(folder, 1)
    found, whole = run_job(job(folder, **asked)), run_job(job(folder, str(folder / "whole"), **asked))
    assert found.alternatives is not None
    assert whole.alternatives is not None
    assert [row.indices for row in found.alternatives.subsets] == [row.indices for row in whole.alternatives.subsets]
    assert found.alternatives.lines() == whole.alternatives.lines()


def test_several_targets_and_all_sizes_continue(folder: Path) -> None:
    X, Y = rows(0, ROWS)
    np.save(folder / "x.npy", X)
    np.save(folder / "y.npy", np.hstack([Y, np.roll(Y, 1, axis=0) + X[:, :1]]))
    dsel.ingest(folder / "x.npy", folder / "data.zarr", y=folder / "y.npy", overwrite=True)
    sizes = {"certify": {"nodes": 10**6, "sizes": "all"}, "k": 3}
    run_job(job(folder, **sizes))
    np.save(folder / "x.npy", X[:7])
    np.save(folder / "y.npy", np.hstack([Y, np.roll(Y, 1, axis=0) + X[:, :1]])[:7])
    dsel.append(folder / "x.npy", folder / "data.zarr", y=folder / "y.npy", again=True)
    found, whole = run_job(job(folder, **sizes)), run_job(job(folder, str(folder / "whole"), **sizes))
    shown = [
        [(row["size"], row["status"], sorted(row["indices"])) for row in one.certificate] for one in (found, whole)
    ]
    assert shown[0] == shown[1]


def narrow(folder: Path, seed: int, count: int, *, first: bool = False, shift: int = 0) -> None:
    """Write or append rows of few columns, which branch and bound proves."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((count, 12))
    np.save(folder / "x.npy", X)
    np.save(folder / "y.npy", (X[:, shift : shift + 4] @ [0.5, 0.4, 0.3, 0.2] + rng.standard_normal(count))[:, None])
    arguments = {"overwrite": True} if first else {"again": True}
    (dsel.ingest if first else dsel.append)(
        folder / "x.npy", folder / "data.zarr", y=folder / "y.npy", **arguments
    )  # fmt: skip


@pytest.mark.parametrize("certify", [{"nodes": 10**6}, {"sizes": "all"}])
def test_few_columns_and_many_rows_need_no_search_the_next_night(folder: Path, certify: dict[str, Any]) -> None:
    narrow(folder, 0, 5000, first=True)
    asked = {"k": 3 if "nodes" in certify else 6, "certify": certify}
    run_job(job(folder, **asked))
    for night in (1, 2):
        narrow(folder, night, 50)
        found = run_job(job(folder, **asked))
        whole = run_job(job(folder, str(folder / f"whole-{night}"), **asked))
        assert found.indices == whole.indices
        for mine, other in zip(found.certificate, whole.certificate, strict=True):
            assert (mine["size"], mine["status"], sorted(mine["indices"])) == (
                other["size"], "optimal", sorted(other["indices"])
            )  # fmt: skip
            assert mine["value"] == pytest.approx(other["value"])
            assert mine["bound"] <= other["value"]
        assert (proof(found)["method"], proof(found)["nodes"]) == (CARRIED, 0)
    assert "leaves checked, 0 searched" in call("show", last(folder))[1]


def test_a_bound_that_no_longer_suffices_is_replaced(folder: Path) -> None:
    narrow(folder, 0, 5000, first=True)
    run_job(job(folder, k=3))
    narrow(folder, 9, 5000, shift=1)  # the next best columns change
    found = proof(run_job(job(folder, k=3)))
    assert (found["status"], found["began_again"]) == (
        "optimal", "because the bound of the run before no longer suffices"
    )  # fmt: skip
    narrow(folder, 10, 50)
    assert proof(run_job(job(folder, k=3)))["method"] == CARRIED


def test_a_proof_with_a_log_begins_again_and_says_why(folder: Path) -> None:
    keys = {"certify": {"log": True}, "k": 2}
    narrow(folder, 0, 500, first=True)
    run_job(job(folder, **keys))
    narrow(folder, 1, 5)
    found = proof(run_job(job(folder, **keys)))
    assert (found["status"], found["began_again"]) == ("optimal", "because the log of each proof is checked alone")


def test_the_folder_of_the_runs_stands_for_the_last_one_in_the_commands_of_proofs(folder: Path) -> None:
    narrow(folder, 0, 500, first=True)
    run_job(job(folder, certify={"log": True}, k=2))
    assert "accepted" in call("verify", folder / "runs")[1]
    assert call("alternatives", folder / "runs")[0] == 0
    assert dsel.open_selection(folder / "runs").alternatives is not None
    assert call("certify", folder / "runs", "--all-sizes")[0] == 0
    assert {row["size"] for row in dsel.open_selection(folder / "runs").certificate} == {1, 2}
    narrow(folder, 1, 5)
    code, _, said = call("certify", folder / "runs")
    assert (code, "Run the job again: each run gets its own folder." in said) == (65, True)


def test_groups_of_columns_need_no_search_the_next_night(folder: Path) -> None:
    narrow(folder, 0, 5000, first=True)
    keys = {"groups": [[j, j + 1] for j in range(0, 12, 2)], "k": 2, "method": "forward"}
    run_job(job(folder, **keys))
    narrow(folder, 1, 50)
    found, whole = run_job(job(folder, **keys)), run_job(job(folder, str(folder / "whole"), **keys))
    assert found.indices == whole.indices
    (mine,), (other,) = found.certificate, whole.certificate
    assert (mine["status"], mine["nodes"], mine["began_again"]) == ("optimal", 0, "")
    assert mine["leaves_checked"] == 10
    assert mine["value"] == pytest.approx(other["value"])


def test_other_groups_of_the_same_columns_begin_again(folder: Path) -> None:
    narrow(folder, 0, 5000, first=True)
    pairs = [[j, j + 1] for j in range(0, 12, 2)]
    run_job(job(folder, groups=pairs, k=2, method="forward"))
    others = [[j, j + 6] for j in range(6)]
    found = proof(run_job(job(folder, groups=others, k=2, method="forward")))
    assert (found["status"], found["began_again"]) == ("optimal", "because the run before had another list of groups")
    assert found["leaves_checked"] == 0


def test_a_proof_without_enough_time_is_continued_the_next_night(folder: Path) -> None:
    first = proof(run_job(job(folder, certify={"nodes": 5})))
    assert first["status"] != "optimal"
    append(folder, 1)
    found = proof(run_job(job(folder)))
    assert (found["status"], found["began_again"]) == ("optimal", "")
    assert found["leaves_checked"] > 0


def test_a_run_that_was_killed_leaves_its_tree_to_the_next_one(folder: Path) -> None:
    run_job(job(folder))
    append(folder, 1)
    run_job(job(folder))
    killed = last(folder)
    (killed / SUMMARY).unlink()  # as if it had been killed during its proof
    values = json.loads((killed / "selection.json").read_text())
    (killed / "selection.json").write_text(json.dumps({**values, "certificate": []}))
    append(folder, 2)
    before = [name for name in run_names(folder / "runs") if name != killed.name][-1]
    (folder / "runs" / before / TREE).unlink(missing_ok=True)
    found = proof(run_job(job(folder)))
    assert (found["status"], found["began_again"]) == ("optimal", "")
    assert found["leaves_checked"] > 0


@pytest.fixture
def few(tmp_path: Path) -> Path:
    """A store of seven numbers and a category, and rows to append."""
    for number in (0, 1):
        rng = np.random.default_rng(number)
        frame = pd.DataFrame(rng.standard_normal((1000 if not number else 20, 7)), columns=[f"c{j}" for j in range(7)])
        frame["kind"] = rng.choice(["a", "b", "c"], len(frame))
        frame["y"] = frame[["c0", "c1", "c2"]] @ [3.0, 2.0, 1.0] + 5.0 * (frame["kind"] == "b")
        frame["y"] += rng.standard_normal(len(frame))
        frame.to_parquet(tmp_path / f"{number}.parquet")
    dsel.ingest(tmp_path / "0.parquet", tmp_path / "data.zarr", target="y", categorical=["kind"])
    return tmp_path


def night_after(folder: Path, **keys: Any) -> tuple[Selection, Selection]:
    first = run_job(job(folder, k=3, **keys))
    dsel.append(folder / "1.parquet", folder / "data.zarr")
    return first, run_job(job(folder, k=3, **keys))


def test_a_bound_on_groups_with_a_category_is_carried_over(few: Path) -> None:
    """All values of a category are dependent columns. Those without the last one are not."""
    first, second = night_after(few, method="forward", certify={"time": "20s"})
    assert (last(few) / "tree-of-proof-3.npz").exists()
    assert (proof(first)["leaves_checked"], proof(second)["leaves_checked"]) == (0, 10)
    assert proof(second)["status"] == "optimal"
    assert set(second.names) == {"c0", "c1", "kind=a", "kind=b", "kind=c"}
    header, _, row = call("history", few / "runs")[1].splitlines()
    assert header.split()[:5] == ["run", "rows", "k", "columns", "error"]
    assert row.split()[1:4] == ["1,020", "3", "5"]


def test_columns_that_depend_on_others_are_the_reason_that_nothing_is_carried_over(few: Path) -> None:
    keys = {"method": "forward", "categories": "columns", "near_copies": "keep", "certify": {"nodes": 10**6}}
    _, second = night_after(few, **keys)
    assert proof(second)["began_again"] == "because some columns depend on others, and no bound is carried over"


def test_the_time_of_the_ten_best_subsets_is_the_reason_that_no_bound_is_carried_over(
    few: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_MORE_NODES", "_FEW_NODES"):
        monkeypatch.setattr(proof_store, name, 0)
    _, second = night_after(few, method="forward", certify={"nodes": 10**6})
    assert proof(second)["began_again"] == "because the ten best subsets of the run before took too long"


@pytest.mark.parametrize(
    "keys",
    [{}, {"certify": {"time": "20s", "sizes": "all"}}, {"exclude": []}],
    ids=["columns", "all sizes", "groups"],
)
def test_a_list_of_near_best_subsets_does_not_say_that_the_proof_began_again(few: Path, keys: dict[str, Any]) -> None:
    """The proof of the best subset of each size was carried over. The list keeps nothing to continue from."""
    asked = {"exclude": ["kind"], "certify": {"time": "20s"}, "alternatives": {"within": "1%"}}
    _, second = night_after(few, method="forward", **{**asked, **keys})
    assert second.alternatives is not None
    assert {(row["nodes"], row["leaves_checked"] > 0, row["began_again"]) for row in second.certificate} == {
        (0, True, "")
    }
    assert second.changes is not None
    assert any("Still proved optimal: " in line for line in describe_changes(second.changes))
    assert call("alternatives", few / "runs", "--nbest", 3)[0] == 0
    assert dsel.open_selection(few / "runs").certificate == second.certificate
    code, *_ = call("certify", few / "runs", "--log")
    assert code == 0
    assert "left no tree" not in call("show", last(few))[1]


def test_the_bounds_of_all_sizes_that_no_longer_suffice_are_the_reason(few: Path) -> None:
    keys: dict[str, Any] = {"categories": "columns", "exclude": ["kind=a", "kind=b", "kind=c"]}
    run_job(job(few, k=3, **keys, certify={"time": "20s", "sizes": "all"}))
    rng = np.random.default_rng(9)
    other = pd.DataFrame(rng.standard_normal((3000, 7)), columns=[f"c{j}" for j in range(7)])
    other["kind"], other["y"] = "a", other[["c3", "c4", "c5"]] @ [3.0, 2.0, 1.0]
    dsel.append(other, few / "data.zarr")
    second = run_job(job(few, k=3, **keys, certify={"time": "20s", "sizes": "all"}))
    why = {row["began_again"] for row in second.certificate if row["size"]}
    assert why == {"because the bounds of the run before no longer suffice for all sizes"}
