"""A real HTTP server on loopback that speaks OpenAI's chat completions."""

import json
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class ChatServer(ThreadingHTTPServer):
    """``answer(body)`` gives a verdict as a dict, text, ``(status, headers)`` or a callable on the
    handler; ``seen`` holds ``(path, headers, body)`` of every request."""

    daemon_threads = True

    def __init__(self, answer):
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer, self.seen = answer, []

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/v1"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.seen.append((self.path, dict(self.headers), body))
        said = self.server.answer(body)
        if callable(said):
            said(self)
        elif isinstance(said, tuple):
            self.reply(said[0], "no", said[1])
        else:
            self.reply(200, completion(said if isinstance(said, str) else json.dumps(said)))

    def reply(self, status, text, headers=()):
        content = text.encode()
        self.send_response(status)
        for name, value in dict(headers).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def completion(content, **message):
    message = {"role": "assistant", "content": content, **message}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    return json.dumps({"id": "1", "object": "chat.completion", "choices": [choice]})


def dripping(handler):
    """A byte every 0.1 s, for ever."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000000")
    handler.end_headers()
    try:
        while True:
            handler.wfile.write(b" ")
            handler.wfile.flush()
            time.sleep(0.1)
    except OSError:
        pass


@contextmanager
def served(answer):
    server = ChatServer(answer)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
