"""One MLflow run for a job: parameters, figures of the search and the answer, the front, and the report.

Where it goes is said by MLFLOW_TRACKING_URI, and by MLFLOW_EXPERIMENT_NAME (by default dsel).
"""

from __future__ import annotations

import os
import time
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from dsel._lib.events import Event, Observer
from dsel.errors import MissingExtraError
from dsel.storage.paths import AnyPath

#: Seconds between figures of the search.
_EVERY: Final = 5.0
_STATUS: Final = {"finished": "FINISHED", "interrupted": "KILLED", "failed": "FAILED"}
_RESULTS: Final = ("r2", "error", "criterion", "passes", "bytes_read", "iterations")


class MlflowRun(Observer):
    """Writes one run. client: an `mlflow.MlflowClient`."""

    def __init__(self, client: Any, folder: AnyPath, run: str) -> None:
        self._client, self._folder, self._name = client, folder, run
        self._id = ""
        self._shown = 0.0

    def observe(self, event: Event) -> None:
        """Write what the event says."""
        values = event.values
        if event.kind == "run-begins":
            self._begin(values)
        elif not self._id:
            return
        elif event.kind == "slice" and values["best"] is not None and time.monotonic() - self._shown >= _EVERY:
            self._shown = time.monotonic()
            self._client.log_metric(self._id, f"{values['stage']}_best", values["best"], step=values["iterations"])
        elif event.kind == "stage-ends":
            self._client.log_metric(self._id, f"seconds_{values['stage']}", values["seconds"])
        elif event.kind == "certificate":
            for key in ("bound", "relative_gap"):
                if values.get(key) is not None:
                    self._client.log_metric(self._id, key, values[key], step=values["size"])
            self._client.set_tag(self._id, f"status_{values['size']}", values["status"])
        elif event.kind == "run-ends":
            self._end(values)

    def _begin(self, values: dict[str, Any]) -> None:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "dsel")
        found = self._client.get_experiment_by_name(name)
        experiment = self._client.create_experiment(name) if found is None else found.experiment_id
        self._id = self._client.create_run(experiment, run_name=self._name).info.run_id
        options = {f"options.{key}": value for key, value in (values.get("options") or {}).items()}
        for key, value in {**values, **options}.items():
            if key != "options" and value is not None:
                self._client.log_param(self._id, key, value)

    def _end(self, values: dict[str, Any]) -> None:
        for key in _RESULTS:
            if values.get(key) is not None:
                self._client.log_metric(self._id, key, float(values[key]))
        if "labels" in values:
            answer = {key: values[key] for key in ("labels", "front")}
            self._client.log_dict(self._id, answer, "selection.json")
            self._report()
        if "failure" in values:
            self._client.set_tag(self._id, "failure", values["failure"][:500])
        self._client.set_terminated(self._id, _STATUS[values["state"]])

    def _report(self) -> None:
        """Attach the report, which needs matplotlib."""
        if find_spec("matplotlib") is None:
            return
        from dsel.selection.result import open_selection

        with TemporaryDirectory() as folder:
            path = open_selection(self._folder).report(Path(folder) / "report.html")
            self._client.log_artifact(self._id, str(path))


def open_mlflow(folder: AnyPath, run: str) -> MlflowRun:
    """Return the observer that writes an MLflow run."""
    # Otherwise a server that does not answer takes minutes. A variable that is set keeps its value.
    for variable, value in (("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2"), ("MLFLOW_HTTP_REQUEST_TIMEOUT", "5")):
        os.environ.setdefault(variable, value)
    try:
        from mlflow import MlflowClient
    except ImportError as error:
        raise MissingExtraError(
            "events mlflow needs MLflow, which is not installed.", "pip install 'dsel[mlflow]'."
        ) from error
    return MlflowRun(MlflowClient(), folder, run)
