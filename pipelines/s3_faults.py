"""An HTTP proxy in front of the S3 server that records requests and makes some of them fail.

Rules say which requests fail, or a hash of the request and of how often it was sent. So the same requests always meet
the same faults, in whatever order they arrive.
"""

from __future__ import annotations

import hashlib
import http.client
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

Kind = Literal["500", "503", "reset", "reset-after", "truncate", "slow", "403", "dropped", "trickle", "hang"]

#: 500 and 503: this status, and the request is not carried out. reset: the connection is closed before the request is
#: carried out; reset-after: afterwards. truncate: the body of the answer ends early. slow: the answer is delayed. Never
#: drawn: 403, whose answer repeats the headers, as some servers do; dropped, a reset because the client is dead;
#: trickle: the body of the answer comes in pieces; hang: there is no answer while the rule says so, then a reset. Every
#: second request that hangs is carried out.
KINDS: tuple[Kind, ...] = ("500", "503", "reset", "reset-after", "truncate", "slow")


@dataclass(frozen=True)
class Request:
    """One request: its method, its key (bucket/path), and how often both arrived before."""

    method: str
    key: str
    times: int


#: Returns the fault of a request, if any.
Rule = Callable[[Request], Kind | None]


def always(kind: Kind, part: str = "", method: str = "") -> Rule:
    """Return a rule for every request of this method whose key contains `part`."""
    return lambda r: kind if part in r.key and r.method.startswith(method) else None


def drawn(seed: int, kinds: tuple[Kind, ...] = KINDS, share: float = 0.3) -> Rule:
    """Return a rule by which a request fails with this probability the first two times, and never later."""

    def rule(request: Request) -> Kind | None:
        if request.times >= 2:
            return None
        text = f"{seed} {request.method} {request.key} {request.times}".encode()
        number = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") / 2**64
        return kinds[int(number / share * len(kinds))] if number < share else None

    return rule


def nothing(request: Request) -> None:
    """The rule without faults."""


@dataclass
class FaultProxy:
    """Forwards to 127.0.0.1:`target`. It calls `after` once a request is carried out, before it answers."""

    target: int
    rule: Rule = nothing
    after: Callable[[Request], None] | None = None
    slow_seconds: float = 0.3
    pieces: int = 5
    record: list[tuple[Request, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._times: Counter[tuple[str, str]] = Counter()
        self._lock = threading.Lock()
        proxy = self

        class Handler(_Handler):
            faults = proxy

        self._server = _Server(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def reset(self) -> None:
        """Remove the rule and forget all requests."""
        self.rule, self.after = nothing, None
        with self._lock:
            self._times.clear()
            self.record.clear()

    def arrived(self, method: str, key: str) -> tuple[Request, Kind | None]:
        with self._lock:
            request = Request(method, key, self._times[method, key])
            self._times[method, key] += 1
            fault = self.rule(request)
            self.record.append((request, fault or ""))
        return request, fault

    def faults(self) -> Counter[str]:
        """Return how often each kind of fault occurred."""
        with self._lock:
            return Counter(fault for _, fault in self.record if fault)

    def done(self, method: str, part: str) -> list[Request]:
        """Return the requests that were carried out."""
        with self._lock:
            return [
                r for r, fault in self.record
                if r.method == method and part in r.key and fault not in ("500", "503", "403", "reset", "dropped")
            ]  # fmt: skip

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore it: the client is dead."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16  # one piece: a second one would wait 40 ms until the first is acknowledged
    disable_nagle_algorithm = True
    faults: FaultProxy

    def _forward(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        request, fault = self.faults.arrived(self.command, self.path.lstrip("/"))
        if fault in ("reset", "dropped"):
            return self._cut()
        if fault == "hang":
            return self._hang(request, body)
        if fault == "403":
            said = "".join(f"<{name}>{value}</{name}>" for name, value in self.headers.items())
            return self._answer(403, {}, f"<Error><Code>InvalidToken</Code>{said}</Error>".encode())
        if fault in ("500", "503"):
            code = "InternalError" if fault == "500" else "SlowDown"
            return self._answer(int(fault), {}, f"<Error><Code>{code}</Code></Error>".encode())
        status, headers, answer = self._ask(body)
        if self.faults.after is not None:
            self.faults.after(request)
        if fault == "reset-after":
            return self._cut()
        if fault == "slow":
            time.sleep(self.faults.slow_seconds)
        if fault == "truncate" and self.command == "GET" and len(answer) > 1:
            self._answer(status, headers, answer, keep=len(answer) // 2)
            return self._cut(gently=True)
        self._answer(status, headers, answer, pieces=self.faults.pieces if fault == "trickle" else 1)

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _forward

    def _hang(self, request: Request, body: bytes) -> None:
        if request.times % 2:
            self._ask(body)
        while self.faults.rule(request) == "hang":
            time.sleep(0.05)
        self._cut()

    def _ask(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.faults.target, timeout=60)
        connection.request(self.command, self.path, body, dict(self.headers))
        answer = connection.getresponse()
        content = answer.read()
        headers = {k: v for k, v in answer.getheaders() if k.lower() not in ("transfer-encoding", "connection", "date")}
        connection.close()
        return answer.status, headers, content

    def _answer(
        self, status: int, headers: dict[str, str], content: bytes, keep: int | None = None, pieces: int = 1
    ) -> None:  # fmt: skip
        self.send_response(status)
        given = {k.lower() for k in headers}
        for name, value in headers.items():
            self.send_header(name, value)
        if "content-length" not in given:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            with suppress(OSError):  # the client may be dead
                size = max(-(-len(content) // pieces), 1)
                for start in range(0, len(content[:keep]), size):
                    time.sleep(self.faults.slow_seconds if start else 0.0)
                    self.wfile.write(content[:keep][start : start + size])
                    self.wfile.flush()
                self.wfile.flush()

    def _cut(self, gently: bool = False) -> None:
        self.close_connection = True
        if not gently:  # a reset, not an orderly close
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        with suppress(OSError):
            self.wfile.flush()
        self.connection.close()

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""
