"""A client of servers that speak OpenAI's chat completions: answers of a schema, within a budget.

An answer is kept on disk under the digest of all that was asked, so that the same question has the
same answer, also in another process and after a resume.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import jsonschema
from pydantic import BaseModel, ConfigDict, Field

from hexad.contract.digest import canonical_json, digest
from hexad.contract.durable import disk_errors
from hexad.contract.faults import UserError, VerifierFault

PAUSE = 0.5
"""Seconds before the second try; doubled before each further one."""
LARGEST = 1 << 20
"""Most bytes of a reply."""
_AGAIN = frozenset({408, 409, 425, 429, *range(500, 600)})
"""HTTP statuses that may pass."""
_SHOWN = 200


class Service(BaseModel):
    """Where and how to ask."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    model: str = Field(min_length=1)
    """The server's name of the model."""
    url: str = Field(default="https://api.openai.com/v1", pattern=r"^https?://[^/\s]+")
    """The address that ``/chat/completions`` is appended to."""
    key: str | None = Field(default=None, pattern=r"^[A-Z][A-Z0-9_]*$")
    """Name of the environment variable that holds the key; ``null`` sends none."""
    temperature: float = Field(default=0.0, ge=0)
    """The server's sampling."""
    max_tokens: int = Field(default=512, gt=0)
    """Most tokens of an answer."""
    timeout: float = Field(default=30.0, gt=0)
    """Seconds of one try."""
    retries: int = Field(default=2, ge=0, le=20)
    """Further tries after a failure that may pass, or an answer that does not fit the schema."""
    seconds: float = Field(default=120.0, gt=0)
    """Seconds of all tries together, with the pauses between them."""
    cache: str | None = None
    """Folder of the answers that were given; ``null`` asks every time."""


class _PassingError(Exception):
    """A failure that may pass; ``wait``: seconds that the server asks for."""

    def __init__(self, what: str, wait: float | None = None) -> None:
        super().__init__(what)
        self.wait = wait


class Client:
    """Asks ``service``. Raises ``UserError`` where the variable of the key is not set.

    The key is read from the environment and is in no message, digest or file.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._headers = {"Content-Type": "application/json"}
        self._host = urlsplit(service.url).netloc.rsplit("@", 1)[-1]
        if service.key is not None:
            held = os.environ.get(service.key, "")
            if not held:
                raise UserError(
                    f"the environment variable {service.key} is not set",
                    where="feedback.options.key",
                    fix=f"export {service.key}=..., or name the variable that holds the key",
                )
            self._headers["Authorization"] = f"Bearer {held}"

    @cached_property
    def _http(self) -> httpx2.Client:
        return httpx2.Client(headers=self._headers)

    def ask(self, system: str, user: str, schema: Mapping[str, Any]) -> dict[str, Any] | None:
        """The answer, which fits the JSON ``schema``; ``None`` where the model declines to answer.

        Raises ``VerifierFault`` where there is none within the service's limits.
        """
        wanted = {"name": "answer", "strict": True, "schema": dict(schema)}
        body = {
            "model": self._service.model,
            "messages": [
                {"role": "system", "content": system},
                {"role": "user", "content": user},
            ],
            "temperature": self._service.temperature,
            "max_tokens": self._service.max_tokens,
            "seed": 0,
            "response_format": {"type": "json_schema", "json_schema": wanted},
        }
        path = self._path(digest({"url": self._service.url, "body": body}))
        if path is not None and path.exists():
            return _kept(path)
        answer = self._answer(body, schema)
        if path is not None:
            _keep(path, answer)
        return answer

    def _path(self, name: str) -> Path | None:
        if self._service.cache is None:
            return None
        return Path(self._service.cache).expanduser() / name[:2] / f"{name}.json"

    def _answer(self, body: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any] | None:
        """Try until an answer fits, the tries are used up, or the time is."""
        service, tries = self._service, 0
        end = time.monotonic() + service.seconds
        while True:
            tries += 1
            try:
                return self._once(body, schema, min(end, time.monotonic() + service.timeout))
            except _PassingError as failure:
                wait = failure.wait if failure.wait is not None else PAUSE * 2 ** (tries - 1)
                over = tries > service.retries or time.monotonic() + wait >= end
                if over:
                    raise VerifierFault(
                        f"{self._host} gave no answer in {tries} tries: {failure}"
                    ) from None
            time.sleep(wait)

    def _once(
        self, body: Mapping[str, Any], schema: Mapping[str, Any], end: float
    ) -> dict[str, Any] | None:
        url = f"{self._service.url.rstrip('/')}/chat/completions"
        # Past the end a moment is left, so that it ends as every other time-out does.
        content, left = canonical_json(body).encode(), max(end - time.monotonic(), 1e-3)
        try:
            with self._http.stream("POST", url, content=content, timeout=left) as reply:
                received = _read(reply, end)
        except httpx2.TransportError as error:
            raise _PassingError(f"{type(error).__name__} {error}".strip()) from error
        if reply.status_code in _AGAIN:
            raise _PassingError(f"status {reply.status_code}", _asked(reply.headers))
        if reply.status_code != 200:
            said = received.decode("utf-8", "replace")[:_SHOWN]
            raise VerifierFault(f"{self._host} says {reply.status_code}: {said}")
        return _structured(received, schema)


def _read(reply: httpx2.Response, end: float) -> bytes:
    """The body. A server that drips is stopped at ``end``, which a time-out of reads would not."""
    received = bytearray()
    for chunk in reply.iter_bytes():
        received += chunk
        if len(received) > LARGEST:
            raise VerifierFault(f"the reply is longer than {LARGEST} bytes")
        if time.monotonic() > end:
            raise _PassingError("the reply took too long")
    return bytes(received)


def _asked(headers: httpx2.Headers) -> float | None:
    """The seconds of ``Retry-After``, where it names seconds."""
    said = headers.get("retry-after", "")
    return float(said) if said.isascii() and said.isdigit() else None


def _structured(received: bytes, schema: Mapping[str, Any]) -> dict[str, Any] | None:
    try:
        message = json.loads(received)["choices"][0]["message"]
        if message["content"] is None and message.get("refusal") is not None:
            return None
        answer = json.loads(message["content"])
        jsonschema.validate(answer, dict(schema))
    except (ValueError, LookupError, TypeError, jsonschema.ValidationError) as error:
        what = getattr(error, "message", str(error))
        raise _PassingError(f"a reply that does not fit: {what[:_SHOWN]}") from error
    assert isinstance(answer, dict)
    return answer


def _kept(path: Path) -> dict[str, Any] | None:
    try:
        answer: dict[str, Any] | None = json.loads(path.read_bytes())["answer"]
    except (ValueError, LookupError, TypeError):
        raise VerifierFault(f"{path} is damaged; remove it") from None
    return answer


def _keep(path: Path, answer: dict[str, Any] | None) -> None:
    """Several processes may write one name: each writes a file of its own and renames it."""
    with disk_errors("keep a judge's answer", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(canonical_json({"answer": answer}))
        os.replace(temporary, path)
