"""One OpenTelemetry trace for a run, with a span for each stage, and in it one for each pass.

Where the trace goes is said by the variables of OpenTelemetry, such as OTEL_EXPORTER_OTLP_ENDPOINT. With TRACEPARENT
the run is a span in the trace of what started it.
"""

from __future__ import annotations

import os
from typing import Any, Protocol

from dsel._lib.events import Event, Observer
from dsel._lib.versions import versions
from dsel.errors import MissingExtraError
from dsel.storage.paths import AnyPath


class Spans(Protocol):
    """Where spans go: the SDK of OpenTelemetry, or a list in tests. Times are seconds since 1970."""

    def start(self, name: str, parent: Any, at: float, attributes: dict[str, Any]) -> Any:
        """Return a new span inside of its parent, which is None for that of the run."""

    def end(self, span: Any, at: float, attributes: dict[str, Any], error: str = "") -> None:
        """End a span. error: why it failed."""

    def close(self) -> None:
        """Send the spans that have not been sent."""


class Trace(Observer):
    """Turns events into spans. Improvements of the search, and certificates, are attributes of their stage."""

    def __init__(self, spans: Spans) -> None:
        self._spans = spans
        self._run: Any = None
        self._stage: Any = None
        self._found: dict[str, Any] = {}  # attributes that the stage gets when it ends

    def observe(self, event: Event) -> None:
        """Start or end the spans that the event begins or ends."""
        values = event.values
        if event.kind == "run-begins":
            self._run = self._spans.start("dsel run", None, event.at, _attributes(values))
        elif event.kind == "stage-begins":
            self._end_stage(event.at)  # a stage that an error has ended says nothing itself
            self._stage = self._spans.start(values["stage"], self._run, event.at, {})
        elif event.kind == "stage-ends":
            self._end_stage(event.at)
        elif event.kind == "pass":
            began = event.at - values["seconds"]
            span = self._spans.start(f"pass: {values['name']}", self._stage or self._run, began, _attributes(values))
            self._spans.end(span, event.at, {})
        elif event.kind in ("slice", "certificate"):
            self._found.update(_attributes({key: value for key, value in values.items() if key != "stage"}))
        else:
            error = values.get("failure", "")
            self._end_stage(event.at, error)
            if self._run is not None:
                self._spans.end(self._run, event.at, _attributes(values), error)
            self._run = None

    def close(self) -> None:
        """Send the spans that have not been sent."""
        self._spans.close()

    def _end_stage(self, at: float, error: str = "") -> None:
        if self._stage is not None:
            self._spans.end(self._stage, at, self._found, error)
        self._stage, self._found = None, {}


def _attributes(values: dict[str, Any]) -> dict[str, Any]:
    """Return what a span can hold: numbers, texts, and lists of texts."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        texts = isinstance(value, list) and all(isinstance(one, str) for one in value)
        if texts or isinstance(value, str | bool | int | float):
            found[f"dsel.{key}"] = value
        elif value is not None and key == "options":
            found.update({f"dsel.options.{name}": str(one) for name, one in value.items() if one is not None})
    return found


class SdkSpans:
    """Spans of OpenTelemetry's SDK. exporter: by default the one for OTLP over HTTP."""

    def __init__(self, exporter: Any = None) -> None:
        try:
            from opentelemetry import propagate, trace
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor

            if exporter is None:
                from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

                exporter = OTLPSpanExporter()
        except ImportError as error:
            raise MissingExtraError(
                "events otel needs the SDK of OpenTelemetry, which is not installed.", "pip install 'dsel[otel]'."
            ) from error
        service = {"service.name": os.environ.get("OTEL_SERVICE_NAME", "dsel"), "service.version": versions()["dsel"]}
        self._provider = TracerProvider(resource=Resource.create(service))
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("dsel")
        self._trace = trace
        given = os.environ.get("TRACEPARENT")
        self._outer = propagate.extract({"traceparent": given}) if given else None

    def start(self, name: str, parent: Any, at: float, attributes: dict[str, Any]) -> Any:
        """Return a new span."""
        context = self._outer if parent is None else self._trace.set_span_in_context(parent)
        return self._tracer.start_span(name, context, attributes=attributes, start_time=int(at * 1e9))

    def end(self, span: Any, at: float, attributes: dict[str, Any], error: str = "") -> None:
        """End a span."""
        span.set_attributes(attributes)
        if error:
            span.set_status(self._trace.Status(self._trace.StatusCode.ERROR, error))
        span.end(int(at * 1e9))

    def close(self) -> None:
        """Send the spans that have not been sent."""
        self._provider.shutdown()


def open_opentelemetry(folder: AnyPath, run: str) -> Trace:
    """Return the observer that sends a trace."""
    return Trace(SdkSpans())
