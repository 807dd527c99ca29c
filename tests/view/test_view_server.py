"""The server: this machine only, one Host, headers; and the commands around it."""

import http.client
import json
import os
import signal
import subprocess
import sys
import threading

import pytest
from shown_run import run

from hexad.contract.faults import UserError
from hexad.view.server import Server
from hexad.view.site import Site


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    return run(tmp_path_factory.mktemp("runs") / "served")


@pytest.fixture
def server(shown):
    with Server(Site([shown])) as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def ask(server, host, path="/", method="GET"):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    connection.putrequest(method, path, skip_host=True)
    if host is not None:
        connection.putheader("Host", host)
    connection.endheaders()
    answer = connection.getresponse()
    return answer.status, answer.read().decode(), answer.headers


def test_it_listens_on_loopback_only(server):
    assert server.server_address[0] == "127.0.0.1" and server.port > 0


@pytest.mark.parametrize("host", [None, "evil.example", "127.0.0.1", "127.0.0.1:1", "localhost"])
def test_another_host_is_refused(server, host):
    status, body, _ = ask(server, host)
    assert status == 421 and "Runs" not in body


def test_its_own_host_is_answered_under_a_strict_policy(server):
    for name in ("127.0.0.1", "localhost"):
        status, body, headers = ask(server, f"{name}:{server.port}")
        assert status == 200 and "served" in body
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy
    assert headers["X-Content-Type-Options"] == "nosniff"


def test_nothing_but_reading_is_possible(server):
    for method in ("POST", "PUT", "DELETE"):
        assert ask(server, f"127.0.0.1:{server.port}", method=method)[0] == 501


def test_a_taken_port_is_the_users_mistake(server, shown):
    with pytest.raises(UserError, match="in use"):
        Server(Site([shown]), server.port)


def test_the_commands_write_serve_and_stop(shown, tmp_path):
    words = [sys.executable, "-m", "hexad"]
    out = tmp_path / "page.html"
    command = [*words, "report", str(shown), "--out", str(out), "--json"]
    told = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(told.stdout)["bytes"] == out.stat().st_size
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen([*words, "view", str(shown)], stdout=-1, text=True, env=environment)
    line = process.stdout.readline()
    assert line.startswith("http://127.0.0.1:"), line
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=20) == 0
    process.stdout.close()
    refused = subprocess.run([*words, "view", str(tmp_path)], capture_output=True, text=True)
    assert refused.returncode == 2 and "holds no run" in refused.stderr
