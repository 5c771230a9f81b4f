"""What observers are told of a run, and that no observer changes it."""

from __future__ import annotations

import json
import logging
import socket
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import dsel
from dsel._lib.events import Event, Observer, emit, observing
from dsel.data.ingest import ingest_arrays
from dsel.errors import CriterionError, OptionError
from dsel.jobs.observers import registry
from dsel.jobs.observers.jsonl import open_jsonl
from dsel.jobs.observers.mlflow import MlflowRun
from dsel.jobs.observers.opentelemetry import SdkSpans, Trace
from dsel.selection.report.tables import front_rows
from tests.cli_runner import call


def problem() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 12))
    return X, X[:, 3] - 2 * X[:, 7] + 0.3 * rng.normal(size=200)


def job(folder: Path, text: str = "") -> Path:
    X, y = problem()
    ingest_arrays(X, folder / "data.zarr", y=y)
    path = folder / "job.yaml"
    path.write_text(f"store: data.zarr\nk: 3\nmethod: poss\ncluster: {{local: {{workers: 1}}}}\n{text}")
    return path


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The events of a job with a proof."""
    folder = tmp_path_factory.mktemp("job")
    code, _, output = call("run", str(job(folder, "certify: {time: 30s}\n")), "--events", "jsonl")
    assert code == 0, output
    return [json.loads(line) for line in (folder / "job.result" / "events.jsonl").read_text().splitlines()]


def test_the_file_has_a_slice_each_second_and_the_last_one_of_a_stage(tmp_path: Path) -> None:
    observer = open_jsonl(tmp_path, "run")
    for i in range(26):
        observer.observe(Event("slice", i / 10, {"stage": "search", "iterations": i, "best": None}))
    observer.observe(Event("stage-ends", 2.6, {"stage": "search", "seconds": 2.6}))
    observer.close()
    lines = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert [line.get("iterations", line["event"]) for line in lines] == [0, 10, 20, 25, "stage-ends"]


def as_event(values: dict[str, Any]) -> Event:
    values = dict(values)
    return Event(values.pop("event"), values.pop("at"), values)


def test_a_job_tells_of_its_stages_passes_slices_and_proofs_in_order(events: list[dict[str, Any]]) -> None:
    kinds = [event["event"] for event in events]
    assert kinds[0] == "run-begins"
    assert kinds[-1] == "run-ends"
    stages = [event["stage"] for event in events if event["event"] == "stage-begins"]
    assert stages == ["statistics", "search", "check", "certificate"]
    assert stages == [event["stage"] for event in events if event["event"] == "stage-ends"]
    assert sum(event["whole"] for event in events if event["event"] == "pass") == 2
    assert (events[-1]["passes"], events[-1]["bytes_read"]) == (2, 2 * 200 * 13 * 8)
    assert "slice" in kinds
    (proof,) = [event for event in events if event["event"] == "certificate"]
    assert proof["status"] == "optimal"
    assert events[0]["method"] == "poss"
    assert events[0]["rows"] == 200
    assert events[-1]["state"] == "finished"
    assert set(events[-1]["labels"]) >= {"x3", "x7"}
    assert events[-1]["front"][-1]["labels"]
    assert [event["at"] for event in events] == sorted(event["at"] for event in events)


def test_python_calls_a_function_and_the_result_is_the_same() -> None:
    X, y = problem()
    seen: list[Event] = []
    found = dsel.select(X, y, k=3, on_event=seen.append)
    assert [event.kind for event in seen][:: len(seen) - 1] == ["run-begins", "run-ends"]
    assert seen[-1].values["r2"] == found.r2
    assert (seen[0].values["loss"], seen[0].values["criterion"]) == ("squared", None)
    assert sum(event.values["whole"] for event in seen if event.kind == "pass") == found.passes
    assert [event.values["stage"] for event in seen if event.kind == "stage-ends"] == ["statistics", "search", "check"]
    assert found.indices == dsel.select(X, y, k=3).indices


def test_the_answer_and_its_front_have_the_values_of_a_criterion() -> None:
    X, y = problem()
    seen: list[Event] = []

    def criterion(S: Any, data: Any) -> float:
        return float(np.abs(data.Y[:, 0] - data.columns(S).sum(axis=1)).mean())

    found = dsel.select(X, y, k=2, method="forward", criterion=criterion, on_event=seen.append)
    assert seen[-1].values["criterion"] == found.criterion
    rows = seen[-1].values["front"]
    assert [row.get("criterion") for row in rows] == [row.criterion for row in found.front]
    assert "criterion" not in rows[0]  # of the empty subset
    dsel.select(X, y, k=2, on_event=seen.append)
    assert not any("criterion" in row for row in seen[-1].values["front"])


def test_the_front_of_an_event_and_of_a_report_has_sizes_up_to_k() -> None:
    X, y = problem()
    seen: list[Event] = []
    found = dsel.select(X, y, k=3, seed=1, on_event=seen.append)
    assert max(row.size for row in found.front) > 3
    shown = [row.size for row in found.front if row.size <= 3]
    assert [row["size"] for row in seen[-1].values["front"]] == shown
    assert [row["size"] for row in front_rows(found)] == [str(size) for size in shown if size]


def test_proofs_in_python_and_of_a_folder_are_observed_as_runs(tmp_path: Path) -> None:
    X, y = problem()
    seen: list[Event] = []
    found = dsel.select(X, y, k=3)
    proved = dsel.certify(found, X, y, on_event=seen.append)
    assert seen[0].values["method"] == found.method
    assert [seen[0].kind, seen[-1].kind] == ["run-begins", "run-ends"]
    assert seen[0].values["columns"] == 12
    assert [event.values["stage"] for event in seen if event.kind == "stage-ends"] == ["certificate"]
    (row,) = [event.values for event in seen if event.kind == "certificate"]
    assert row == proved.certificate[-1]
    assert seen[-1].values["state"] == "finished"
    assert seen[-1].values["labels"] == proved.labels
    read = sum(event.values["bytes_read"] for event in seen if event.kind == "pass")
    assert seen[-1].values["bytes_read"] == read < proved.bytes_read  # without what the selection had read

    folder = job(tmp_path).parent / "job.result"
    assert call("run", tmp_path / "job.yaml")[0] == 0
    for command, stage in (("certify", "certificate"), ("alternatives", "alternatives")):
        (folder / "events.jsonl").unlink(missing_ok=True)
        assert call(command, folder, "--events", "jsonl")[0] == 0
        events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
        assert [event["stage"] for event in events if event["event"] == "stage-ends"] == [stage]
        assert sum(event["event"] == "certificate" for event in events) == (command == "certify")
        assert events[0]["folder"] == str(folder)
        assert events[-1]["state"] == "finished"


def test_a_function_that_fails_is_called_once_and_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    X, y = problem()
    calls = []

    def fails(event: Event) -> None:
        calls.append(event)
        raise RuntimeError("no room")

    found = dsel.select(X, y, k=3, on_event=fails)
    assert len(calls) == 1
    assert "on_event fails, and is not called again: RuntimeError: no room" in caplog.text
    assert found.indices == dsel.select(X, y, k=3).indices


def test_a_run_that_fails_says_so() -> None:
    X, y = problem()
    seen: list[Event] = []

    def criterion(S: Any) -> float:
        raise ValueError("a defect")

    with pytest.raises(CriterionError):
        dsel.select(X, y, k=2, criterion=criterion, iterations=20, on_event=seen.append)
    assert seen[0].values["criterion"].endswith("criterion")
    assert seen[-1].kind == "run-ends"
    assert seen[-1].values["state"] == "failed"
    assert "a defect" in seen[-1].values["failure"]


class Recorded:
    """Spans as a list: what an exporter would get."""

    def __init__(self) -> None:
        self.all: list[SimpleNamespace] = []
        self.closed = False

    def start(self, name: str, parent: Any, at: float, attributes: dict[str, Any]) -> Any:
        self.all.append(
            SimpleNamespace(name=name, parent=parent, start=at, end=None, attributes=dict(attributes), error="")
        )
        return self.all[-1]

    def end(self, span: Any, at: float, attributes: dict[str, Any], error: str = "") -> None:
        assert span.end is None
        span.end, span.error = at, error
        span.attributes.update(attributes)

    def close(self) -> None:
        self.closed = True


def test_a_trace_has_a_span_for_each_stage_and_in_it_for_each_pass(events: list[dict[str, Any]]) -> None:
    spans = Recorded()
    trace = Trace(spans)
    for event in events:
        trace.observe(as_event(event))
    trace.close()
    run, *rest = spans.all
    assert spans.closed
    assert run.name == "dsel run"
    assert run.parent is None
    assert run.attributes["dsel.method"] == "poss"
    assert run.attributes["dsel.r2"] > 0.9
    stages = [span for span in rest if span.parent is run]
    assert [span.name for span in stages] == ["statistics", "search", "check", "certificate"]
    assert stages[3].attributes["dsel.status"] == "optimal"
    passes = [span for span in rest if span.name.startswith("pass: ")]
    assert {span.parent.name for span in passes} == {"statistics", "check"}
    assert all(
        span.parent is None or span.parent.start - 0.05 <= span.start <= span.end <= run.end for span in spans.all
    )


def test_an_error_ends_the_open_spans_with_its_text() -> None:
    spans = Recorded()
    trace = Trace(spans)
    trace.observe(Event("run-begins", 1.0, {"method": "poss"}))
    trace.observe(Event("stage-begins", 2.0, {"stage": "search"}))
    trace.observe(Event("run-ends", 3.0, {"state": "failed", "failure": "DataError: NaN"}))
    assert [(span.name, span.end, span.error) for span in spans.all] == [
        ("dsel run", 3.0, "DataError: NaN"), ("search", 3.0, "DataError: NaN"),
    ]  # fmt: skip


def test_the_sdk_exports_the_same_spans(events: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    monkeypatch.setenv("TRACEPARENT", f"00-{'1' * 32}-{'2' * 16}-01")
    exporter, expected = memory.InMemorySpanExporter(), Recorded()
    for trace in (Trace(SdkSpans(exporter)), Trace(expected)):
        for event in events:
            trace.observe(as_event(event))
        trace.close()
    spans = {span.context.span_id: span for span in exporter.get_finished_spans()}
    assert sorted(span.name for span in spans.values()) == sorted(span.name for span in expected.all)
    assert {span.context.trace_id for span in spans.values()} == {int("1" * 32, 16)}
    (run,) = [span for span in spans.values() if span.name == "dsel run"]
    assert run.parent.span_id == int("2" * 16, 16)
    assert {spans[s.parent.span_id].name for s in spans.values() if s.name.startswith("pass: ")} == {
        "statistics",
        "check",
    }


class Client:
    """Takes what an MLflow client is told."""

    def __init__(self) -> None:
        self.params: dict[str, Any] = {}
        self.metrics: dict[str, Any] = {}
        self.files: list[str] = []
        self.status = ""

    def get_experiment_by_name(self, name: str) -> None:
        return None

    def create_experiment(self, name: str) -> str:
        assert name == "dsel"
        return "7"

    def create_run(self, experiment: str, run_name: str) -> Any:
        assert (experiment, run_name) == ("7", "night")
        return SimpleNamespace(info=SimpleNamespace(run_id="1"))

    def log_param(self, run: str, key: str, value: Any) -> None:
        self.params[key] = value

    def log_metric(self, run: str, key: str, value: float, step: int = 0) -> None:
        self.metrics[key] = value

    def set_tag(self, run: str, key: str, value: str) -> None:
        self.params[f"tag {key}"] = value

    def log_dict(self, run: str, values: Any, name: str) -> None:
        self.files.append(name)
        assert {"labels", "front"} == set(values)

    def log_artifact(self, run: str, path: str) -> None:
        assert "<html" in Path(path).read_text()
        self.files.append(Path(path).name)

    def set_terminated(self, run: str, status: str) -> None:
        self.status = status


def test_an_mlflow_run_has_parameters_figures_front_and_report(events: list[dict[str, Any]]) -> None:
    client = Client()
    observer = MlflowRun(client, Path(events[0]["folder"]), "night")
    for event in events:
        observer.observe(as_event(event))
    assert client.params["method"] == "poss"
    assert client.params["k"] == 3
    assert client.metrics["r2"] == events[-1]["r2"]
    assert client.metrics["passes"] == 2
    assert client.metrics["relative_gap"] <= 1e-9
    assert {"seconds_statistics", "seconds_search", "seconds_certificate"} <= set(client.metrics)
    assert client.files == ["selection.json", "report.html"]
    assert client.status == "FINISHED"


def test_mlflow_itself_takes_the_run(
    events: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    client = mlflow.MlflowClient(tracking_uri=(tmp_path / "mlruns").as_uri())
    observer = MlflowRun(client, Path(events[0]["folder"]), "night")
    for event in events:
        observer.observe(as_event(event))
    (run,) = client.search_runs([client.get_experiment_by_name("dsel").experiment_id])
    assert run.info.status == "FINISHED"
    assert run.data.metrics["r2"] == events[-1]["r2"]
    assert run.data.params["method"] == "poss"
    assert {file.path for file in client.list_artifacts(run.info.run_id)} >= {"selection.json"}


def closed_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.mark.parametrize(("name", "module"), [("otel", "opentelemetry.sdk"), ("mlflow", "mlflow")])
def test_a_server_that_is_not_there_changes_neither_result_nor_exit_code(
    name: str, module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(module)
    address = f"http://127.0.0.1:{closed_port()}"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    monkeypatch.setattr("dsel._lib.events.CLOSE_SECONDS", 2.0)
    path = job(tmp_path)
    code, _, output = call("run", str(path), "--events", name, "--out", str(tmp_path / "observed"))
    assert code == 0, output
    assert call("run", str(path))[0] == 0
    observed, alone = dsel.open_selection(tmp_path / "observed"), dsel.open_selection(tmp_path / "job.result")
    assert observed.indices == alone.indices
    assert observed.error == alone.error


@pytest.mark.parametrize(("name", "extra"), [("otel", "dsel[otel]"), ("mlflow", "dsel[mlflow]")])
def test_a_missing_package_is_an_error_before_anything_runs(
    name: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("opentelemetry", "mlflow"):
        monkeypatch.setitem(__import__("sys").modules, module, None)
    code, _, output = call("run", str(job(tmp_path)), "--events", name)
    assert code == 69
    assert extra in output
    assert not (tmp_path / "job.result" / "selection.json").exists()


def test_an_unknown_name_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    code, _, output = call("run", str(job(tmp_path)), "--events", "jsnl")
    assert code == 64
    assert "jsonl" in output


def test_a_package_can_add_an_observer(tmp_path: Path) -> None:
    seen: list[str] = []

    class Mine(Observer):
        def observe(self, event: Event) -> None:
            seen.append(event.kind)

        def close(self) -> None:
            seen.append("closed")

    kind = registry.ObserverKind("mine", "For this test.", lambda folder, run: Mine())
    with registry.OBSERVERS.including(kind), registry.observed(["mine", "mine"], tmp_path, "run"):
        emit("stage-begins", stage="search")
    assert seen == ["stage-begins", "closed"]
    with pytest.raises(OptionError, match="mine"), registry.observed(["mine"], tmp_path, "run"):
        pass


def test_an_observer_that_hangs_does_not_hold_up_the_run(caplog: pytest.LogCaptureFixture) -> None:
    hangs = threading.Event()

    class Hangs(Observer):
        def observe(self, event: Event) -> None:
            hangs.wait(30)

    began = time.monotonic()
    with caplog.at_level(logging.WARNING, "dsel"), observing(Hangs(), "hanging", close_seconds=0.2):
        for i in range(20_000):
            emit("slice", stage="search", iterations=i, best=None)
    assert time.monotonic() - began < 5
    assert "it has not taken all events after 0.2 s" in caplog.text
    hangs.set()


def test_a_slice_costs_nothing_without_observers_and_little_with_one() -> None:
    """A slice takes a tenth of a second: a thousandth of it is far below 1 %."""

    class Counts(Observer):
        def observe(self, event: Event) -> None:
            pass

    def seconds_of_each(times: int = 2000) -> float:
        began = time.perf_counter()
        for i in range(times):
            emit("slice", stage="search", iterations=i, best=1.0)
        return (time.perf_counter() - began) / times

    assert min(seconds_of_each() for _ in range(3)) < 1e-5
    with observing(Counts(), "counting"):
        assert min(seconds_of_each() for _ in range(3)) < 1e-4
