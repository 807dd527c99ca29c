"""Serves a :class:`Site` to this machine only.

It listens on 127.0.0.1 and answers only requests whose ``Host`` is that address: a page from
elsewhere that has its own name resolved to this machine (DNS rebinding) is refused.
"""

from __future__ import annotations

from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from hexad.contract.faults import UserError
from hexad.view.site import Answer, Site

HOST = "127.0.0.1"
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Server(ThreadingHTTPServer):
    """Listens on ``port`` of 127.0.0.1; 0 is any free one.

    Raises ``UserError`` for a port that is taken.
    """

    daemon_threads = True

    def __init__(self, site: Site, port: int = 0) -> None:
        self.site = site
        try:
            super().__init__((HOST, port), _Handler)
        except OSError as error:
            fix = "give another port, or leave --port out for a free one"
            raise UserError(str(error), where=f"{HOST}:{port}", fix=fix) from error

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self.server_address[1])

    @property
    def url(self) -> str:
        """Where to point a browser."""
        return f"http://{HOST}:{self.port}/"


class _Handler(BaseHTTPRequestHandler):
    server: Server
    server_version, sys_version = "hexad", ""

    def do_GET(self) -> None:
        hosts = (f"{HOST}:{self.server.port}", f"localhost:{self.server.port}")
        if self.headers.get("Host") not in hosts:
            text = f"This server answers to {self.server.url} only."
            self._send(Answer(text, "text/plain; charset=utf-8", HTTPStatus.MISDIRECTED_REQUEST))
            return
        self._send(self.server.site.answer(self.path))

    def _send(self, answer: Answer) -> None:
        body = answer.body.encode()
        self.send_response(answer.status)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", answer.kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Requests of a page that follows its run are no news."""
