"""Live report of a run in progress, as a page on this machine that refreshes by itself.

The page is for the user who started the run. It is served on loopback alone, under an address that cannot be
guessed; requests that come from another site's pages are refused. Whatever happens to the page, the run goes
on.
"""

import errno
import hashlib
import hmac
import io
import secrets
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, NamedTuple

from tacit.errors import InvalidValue, require, require_positive

if TYPE_CHECKING:
    from tacit.reports.page.blocks import Page

    # Renderer of a page as HTML; it takes the interval of the page's requests, None for never.
    Render = Callable[[Page, float | None], str]

HERE = "127.0.0.1"
# Timeout of a request and of an answer, in seconds; largest size of a request.
PATIENCE, LONGEST = 5.0, 16 * 1024
# Number of concurrent requests; connections beyond are closed.
AT_ONCE = 16
# Time for which the last state is held ready for a watching browser, in seconds.
LINGER = 5.0
HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Content-Security-Policy": "frame-ancestors 'none'",
}
SENTENCES = {
    HTTPStatus.FORBIDDEN: "Another website requested this page: type the address, or open it from the "
    "terminal.",
    HTTPStatus.NOT_FOUND: "There is nothing here.",
    HTTPStatus.METHOD_NOT_ALLOWED: "This server only shows a page.",
    HTTPStatus.MISDIRECTED_REQUEST: "The request is for another server.",
}


@dataclass(frozen=True)
class Live:
    """A page that is being served.

    Args:
        url: Its address, which is enough to see the page.
    """

    url: str


@contextmanager
def serve_page(
    page: "Callable[[], Page]", *, port: int = 0, refresh: float = 2.0, render: "Render | None" = None
) -> Generator[Live]:
    """Serve a report on loopback as long as the block lasts; afterwards the port is closed again.

    A browser that still watches when the block ends well gets the last state first, for a few seconds.

    Args:
        page: The current report; requested by another thread, and never by two at once.
        port: Port to serve it at; 0 for any free one.
        refresh: Interval of the page's requests, in seconds; it is not rendered more often either.
        render: Renderer of the HTML, if not the usual one.

    Raises:
        InvalidValue: The port is taken, or needs privileges.
    """
    require(0 <= port <= 65535, "port", port, "from 1 to 65535, or 0 for any that is free")
    require_positive("refresh", refresh)
    shown = _PageCache(page, render or _render_html, refresh)
    server = _bind_server(port, shown)
    worker = threading.Thread(target=server.work, name="tacit-live", daemon=True)
    worker.start()
    try:
        yield Live(f"http://{HERE}:{server.server_port}/{server.token}/")
        shown.end()
    finally:
        server.shutdown()
        server.server_close()
        worker.join()


def _render_html(page: "Page", refresh: float | None) -> str:
    from tacit.reports.page.html import html

    return html(page, refresh=refresh)


def _bind_server(port: int, shown: "_PageCache") -> "_Server":
    try:
        return _Server(port, shown)
    except OSError as error:
        why = {
            errno.EADDRINUSE: "another program uses it",
            errno.EACCES: "only the administrator of this machine may use it",
        }.get(error.errno or 0, error.strerror)
        raise InvalidValue(
            f"port = {port} is not allowed: {why}. Give another one, or 0 for any that is free"
        ) from error


class _Snapshot(NamedTuple):
    """The page as rendered at one time."""

    status: HTTPStatus
    kind: str
    body: bytes
    last: bool

    @property
    def tag(self) -> str:
        return f'"{hashlib.sha256(self.body).hexdigest()[:32]}"'


class _PageCache:
    """Cache of the rendered page: made upon a request, by one thread at a time, and kept for a while."""

    def __init__(self, page: "Callable[[], Page]", render: "Render", refresh: float) -> None:
        self._page, self._render, self._refresh = page, render, refresh
        self._lock, self._taken = threading.Lock(), threading.Event()
        self._sight: _Snapshot | None = None
        self._fresh_until = self._asked = float("-inf")
        self._over = False

    def current(self) -> _Snapshot:
        """Return the current page."""
        self._asked = time.monotonic()
        with self._lock:
            stale = time.monotonic() >= self._fresh_until
            if self._sight is None or stale or self._sight.last != self._over:
                began = time.monotonic()
                self._sight = self._make(last=self._over)
                # A slow page is rendered less often: the run needs the machine more than the page.
                took = time.monotonic() - began
                self._fresh_until = time.monotonic() + max(self._refresh, took)
            return self._sight

    def confirm_delivery(self, sight: _Snapshot) -> None:
        """Note that a browser has received the page."""
        if sight.last:
            self._taken.set()

    def end(self) -> None:
        """End the page: wait a little for a watching browser to get the last state."""
        watched = time.monotonic() - self._asked < 3 * self._refresh
        self._over = True
        if watched:
            self._taken.wait(LINGER)

    def _make(self, *, last: bool) -> _Snapshot:
        try:
            # The last state does not refresh: the server is about to end.
            text = self._render(self._page(), None if last else self._refresh)
            return _Snapshot(HTTPStatus.OK, "text/html", text.encode("utf-8", "replace"), last)
        except Exception as error:
            words = (
                f"The report cannot be drawn just now ({type(error).__name__}: {error}). The run goes on.\n"
            )
            failed = words.encode("utf-8", "replace")
            return _Snapshot(HTTPStatus.INTERNAL_SERVER_ERROR, "text/plain", failed, last)


class _Server(ThreadingHTTPServer):
    """A server that clients cannot keep busy for long, and that leaves no thread behind."""

    daemon_threads = True
    request_queue_size = 4 * AT_ONCE

    def __init__(self, port: int, shown: _PageCache) -> None:
        self.shown, self.token = shown, secrets.token_urlsafe(24)
        self._open: dict[socket.socket, threading.Thread] = {}
        self._guard = threading.Lock()
        super().__init__((HERE, port), _Handler)

    def server_bind(self) -> None:
        """Bind the port without a name lookup of this machine."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = HERE, int(self.server_address[1])

    def work(self) -> None:
        """Answer requests until the server is shut down."""
        # It may be ended before it has begun.
        with suppress(Exception):
            self.serve_forever(poll_interval=0.05)

    def process_request(self, request: socket.socket, client_address: object) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Answer in a new thread, unless too many requests are open."""
        with self._guard:
            if len(self._open) < AT_ONCE:
                worker = threading.Thread(target=self._answer, args=(request, client_address), daemon=True)
                self._open[request] = worker
                worker.start()
                return
        self.shutdown_request(request)

    def _answer(self, request: socket.socket, client_address: object) -> None:
        try:
            # A client that disconnects, or never sends anything, does not concern the run.
            with suppress(Exception):
                self.finish_request(request, client_address)  # pyright: ignore[reportArgumentType]
        finally:
            self.shutdown_request(request)
            with self._guard:
                del self._open[request]

    def server_close(self) -> None:
        """Close the port, and everything that is open."""
        super().server_close()
        with self._guard:
            left = dict(self._open)
        for request in left:
            with suppress(OSError):
                request.shutdown(socket.SHUT_RDWR)
        for worker in left.values():
            worker.join(PATIENCE)


class _Handler(BaseHTTPRequestHandler):
    """One request, one answer."""

    server: _Server  # pyright: ignore[reportIncompatibleVariableOverride]
    # A request that does not say its version is answered with all headers, too.
    default_request_version = "HTTP/1.0"
    _head = b""

    def setup(self) -> None:
        """Read the head of a request, within its time and size limits."""
        super().setup()
        end = time.monotonic() + PATIENCE
        while b"\r\n\r\n" not in self._head and len(self._head) <= LONGEST:
            self.connection.settimeout(max(end - time.monotonic(), 0.001))
            part = self.connection.recv(LONGEST)
            if not part:
                break
            self._head += part
        self.connection.settimeout(PATIENCE)
        self.rfile.close()
        self.rfile = io.BytesIO(self._head)

    def handle_one_request(self) -> None:
        """Refuse requests that are too long, answer others."""
        if len(self._head) <= LONGEST:
            super().handle_one_request()
            return
        self.requestline, self.request_version, self.command = "", self.default_request_version, ""
        self.send_error(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)

    def do_GET(self) -> None:
        """Send the page to a client with its address."""
        refused = self._refusal()
        if refused is not None:
            self._refuse(refused)
            return
        sight = self.server.shown.current()
        known = [tag.strip().removeprefix("W/") for tag in self.headers.get("If-None-Match", "").split(",")]
        if sight.status == HTTPStatus.OK and sight.tag in known:
            self._answer(HTTPStatus.NOT_MODIFIED, sight.kind, b"", {"ETag": sight.tag})
        else:
            tag = {"ETag": sight.tag} if sight.status == HTTPStatus.OK else {}
            self._answer(sight.status, sight.kind, sight.body, tag)
        if self.command == "GET":
            self.server.shown.confirm_delivery(sight)

    do_HEAD = do_GET

    def _refusal(self) -> HTTPStatus | None:
        """Return the status of a refusal; None for a valid request."""
        # A foreign name that resolves to this machine would give its pages the same origin as ours (DNS
        # rebinding).
        hosts = {f"{HERE}:{self.server.server_port}", f"localhost:{self.server.server_port}"}
        named = self.headers.get_all("Host", [])
        if len(named) != 1 or named[0].strip().lower() not in hosts:
            return HTTPStatus.MISDIRECTED_REQUEST
        origins = self.headers.get_all("Origin", [])
        ours = f"http://{named[0].strip().lower()}"
        # Old browsers omit the header; typed addresses, and those opened from a terminal, have no origin.
        from_where = self.headers.get_all("Sec-Fetch-Site", ["none"])
        if any(origin != ours for origin in origins) or not {"none", "same-origin"}.issuperset(from_where):
            return HTTPStatus.FORBIDDEN
        wanted = f"/{self.server.token}/".encode()
        if not hmac.compare_digest(self.path.encode("utf-8", "surrogateescape"), wanted):
            return HTTPStatus.NOT_FOUND
        return None

    def _refuse(self, status: HTTPStatus) -> None:
        words = SENTENCES.get(status, "This request cannot be answered.")
        more = {"Allow": "GET, HEAD"} if status == HTTPStatus.METHOD_NOT_ALLOWED else {}
        self._answer(status, "text/plain", f"{words}\n".encode(), more)

    def _answer(self, status: HTTPStatus, kind: str, body: bytes, more: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**HEADERS, **more}.items():
            self.send_header(name, value)
        if status != HTTPStatus.NOT_MODIFIED:
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse invalid requests without echoing them."""
        unknown = code == HTTPStatus.NOT_IMPLEMENTED
        self._refuse(HTTPStatus.METHOD_NOT_ALLOWED if unknown else HTTPStatus(code))
        self.close_connection = True

    def version_string(self) -> str:
        """Return the server's name for headers."""
        return "tacit"

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""
