"""Drives headless Chromium through its WebDriver, which speaks JSON over HTTP on loopback."""

import base64
import http.client
import json
import shutil
import subprocess

import pytest

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
needs_chromium = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="chromium and chromedriver are not installed"
)
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"


class Browser:
    """One session; ``js`` runs a script in the page and returns its value."""

    def __init__(self):
        command = [DRIVER, "--port=0"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.port = None
        for line in self.process.stdout:
            if "successfully on port" in line:
                self.port = int(line.split("port ")[1].split(".")[0])
                break
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        options = {"binary": CHROMIUM, "args": [*arguments, "--window-size=1240,1000"]}
        wanted = {"alwaysMatch": {"goog:chromeOptions": options}}
        self.session = ""
        self.session = "/" + self._ask("POST", "session", {"capabilities": wanted})["sessionId"]

    def open(self, url):
        self._ask("POST", "url", {"url": url})

    def js(self, script):
        return self._ask("POST", "execute/sync", {"script": script, "args": []})

    def keys(self, text):
        """Type into what has the focus."""
        found = self._ask("GET", "element/active")[ELEMENT]
        self._ask("POST", f"element/{found}/value", {"text": text})

    def devtools(self, command, **parameters):
        self._ask("POST", "goog/cdp/execute", {"cmd": command, "params": parameters})

    def picture(self, path):
        path.write_bytes(base64.b64decode(self._ask("GET", "screenshot")))

    def close(self):
        self._ask("DELETE", "")
        self.process.terminate()
        self.process.wait(timeout=10)
        self.process.stdout.close()

    def _ask(self, method, what, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        place = "/session" if what == "session" else f"/session{self.session}/{what}".rstrip("/")
        connection.request(method, place, None if body is None else json.dumps(body))
        value = json.loads(connection.getresponse().read())["value"]
        connection.close()
        if isinstance(value, dict) and "error" in value:
            raise RuntimeError(f"{value['error']}: {value['message']}")
        return value
