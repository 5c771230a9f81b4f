"""An HTTP proxy that stands before the S3 server, keeps a record, and does wrong what it is told to.

Which requests go wrong is said by rules, or drawn by a hash of the request and of how often it was made: the same
requests meet the same faults, in whatever order they come.
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

Kind = Literal["500", "503", "reset", "reset-after", "truncate", "slow", "403", "dropped"]

#: 500 and 503: answered so, nothing done. reset: the connection is cut before, reset-after: when it is done. truncate:
#: the body of the answer ends early. slow: the answer waits. Not among those that are drawn: 403, whose answer repeats
#: what came in the headers, as some servers do, and dropped, which is a reset because the one who asked is dead.
KINDS: tuple[Kind, ...] = ("500", "503", "reset", "reset-after", "truncate", "slow")


@dataclass(frozen=True)
class Request:
    """One request as it came: its method, its key (bucket/path), and how often the two came before."""

    method: str
    key: str
    times: int


#: What goes wrong with a request, if anything.
Rule = Callable[[Request], Kind | None]


def always(kind: Kind, part: str = "", method: str = "") -> Rule:
    """Every request of this method whose key has this part."""
    return lambda r: kind if part in r.key and r.method.startswith(method) else None


def drawn(seed: int, kinds: tuple[Kind, ...] = KINDS, share: float = 0.3) -> Rule:
    """The first and second time a request is made it goes wrong with this probability, the third time it works."""

    def rule(request: Request) -> Kind | None:
        if request.times >= 2:
            return None
        text = f"{seed} {request.method} {request.key} {request.times}".encode()
        number = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") / 2**64
        return kinds[int(number / share * len(kinds))] if number < share else None

    return rule


def nothing(request: Request) -> None:
    """All is well."""


@dataclass
class FaultProxy:
    """Forwards to 127.0.0.1:`target`. `after` sees every request when it is carried out and not yet answered."""

    target: int
    rule: Rule = nothing
    after: Callable[[Request], None] | None = None
    slow_seconds: float = 0.3
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
        """All is well from now on, and nothing is on record."""
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
        """How often each kind of fault was met."""
        with self._lock:
            return Counter(fault for _, fault in self.record if fault)

    def done(self, method: str, part: str) -> list[Request]:
        """Requests that were carried out."""
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
        """Who asked is dead: that is no news here."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16  # an answer in one piece: in two, the second waits 40 ms for the first to be acknowledged
    disable_nagle_algorithm = True
    faults: FaultProxy

    def _forward(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        request, fault = self.faults.arrived(self.command, self.path.lstrip("/"))
        if fault in ("reset", "dropped"):
            return self._cut()
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
        self._answer(status, headers, answer)

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _forward

    def _ask(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.faults.target, timeout=60)
        connection.request(self.command, self.path, body, dict(self.headers))
        answer = connection.getresponse()
        content = answer.read()
        headers = {k: v for k, v in answer.getheaders() if k.lower() not in ("transfer-encoding", "connection", "date")}
        connection.close()
        return answer.status, headers, content

    def _answer(self, status: int, headers: dict[str, str], content: bytes, keep: int | None = None) -> None:
        self.send_response(status)
        given = {k.lower() for k in headers}
        for name, value in headers.items():
            self.send_header(name, value)
        if "content-length" not in given:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            with suppress(OSError):  # who asked may be gone
                self.wfile.write(content[:keep])
                self.wfile.flush()

    def _cut(self, gently: bool = False) -> None:
        self.close_connection = True
        if not gently:  # a reset, not an orderly end
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        with suppress(OSError):
            self.wfile.flush()
        self.connection.close()

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is printed."""
