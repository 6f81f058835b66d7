"""A web server for tests: it serves recordings and takes messages, badly when it is asked to."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[[BaseHTTPRequestHandler], None]


class Web:
    """What is served, and what was asked."""

    def __init__(self) -> None:
        self.pages: dict[str, Answer] = {}
        self.asked: list[tuple[str, dict[str, str]]] = []
        """Path and headers of each request, names in lower case."""
        self.sent: list[tuple[str, dict[str, str], bytes]] = []
        """Path, headers and body of each message that came by POST."""
        self.busy = self.most_busy = 0
        """Requests being answered now, and at most so far."""
        self.port = 0

    def url(self, path: str, host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    def page(self, path: str, body: bytes = b"", status: int = 200, **headers: str) -> str:
        """Serve `body`; returns the URL."""

        def answer(request: BaseHTTPRequestHandler) -> None:
            request.send_response(status)
            for name, value in {"content_length": str(len(body)), **headers}.items():
                request.send_header(name.replace("_", "-"), value)
            request.end_headers()
            request.wfile.write(body)

        self.pages[path] = answer
        return self.url(path)

    def drip(self, path: str, every_s: float, **headers: str) -> str:
        """Serve a byte now and then, without end."""

        def answer(request: BaseHTTPRequestHandler) -> None:
            request.send_response(200)
            for name, value in headers.items():
                request.send_header(name.replace("_", "-"), value)
            request.end_headers()
            while True:
                request.wfile.write(b"x")
                time.sleep(every_s)

        self.pages[path] = answer
        return self.url(path)


@contextmanager
def serving(host: str = "127.0.0.1", tls: Any = None) -> Iterator[Web]:
    """A server on a free port."""
    web = Web()
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            with lock:
                web.sent.append((self.path, self._named(), body))
            self.do_GET()

        def _named(self) -> dict[str, str]:
            return {name.lower(): value for name, value in self.headers.items()}

        def do_GET(self) -> None:
            with lock:
                web.asked.append((self.path, self._named()))
                web.busy += 1
                web.most_busy = max(web.most_busy, web.busy)
            try:
                found = web.pages.get(self.path)
                if found is None:
                    self.send_error(404)
                else:
                    found(self)
            except OSError:
                pass  # who asked has gone
            finally:
                with lock:
                    web.busy -= 1

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer((host, 0), Handler)
    server.daemon_threads = True
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    web.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield web
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
