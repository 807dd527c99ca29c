"""What crosses the border to a verifier's process, as JSON text: requests there, verdicts back."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from hexad.contract.arrow import from_ipc, to_ipc
from hexad.contract.digest import canonical_json
from hexad.contract.episode import Episode
from hexad.contract.faults import VerifierFault
from hexad.contract.messages import Message, Role, ToolCall
from hexad.contract.task import Split, Task
from hexad.contract.verdict import Verdict, VerdictStatus
from hexad.environments.registry import Origin


def pack_origin(origin: Origin, name: str, options: Mapping[str, Any]) -> str:
    """The family's origin, the verifier's ``name`` and its ``options``."""
    family = [origin.name, origin.options, origin.split_options]
    return json.dumps([name, _pack(options), _pack(family)])


def unpack_origin(text: str) -> tuple[str, dict[str, Any], Origin]:
    """Inverse of :func:`pack_origin`; the family made from it starts no tool workers of its own."""
    name, own, packed = json.loads(text)
    family, options, split_options = _unpack(packed)
    return name, _unpack(own), Origin(family, options, split_options, workers=1)


def pack_request(task: Task, episode: Episode, transcript: tuple[Message, ...]) -> dict[str, Any]:
    """Everything that a verifier is shown. Raises ``TypeError`` for a task that is not JSON."""
    return {
        "task": _pack([task.task_id, task.split.value, task.data]),
        "episode": base64.b64encode(to_ipc([episode])).decode(),
        "transcript": _pack([asdict(message) for message in transcript]),
    }


def unpack_request(line: str) -> tuple[Task, Episode, tuple[Message, ...]]:
    """Inverse of :func:`pack_request`."""
    request = json.loads(line)
    task_id, split, data = _unpack(request["task"])
    (episode,) = from_ipc(base64.b64decode(request["episode"]))
    transcript = tuple(_message(fields) for fields in _unpack(request["transcript"]))
    return Task(task_id, Split(split), data), episode, transcript


def pack_verdict(verdict: Verdict) -> dict[str, Any]:
    """The reply that carries ``verdict``, which was checked."""
    return {"verdict": [verdict.status.value, verdict.score, verdict.evidence]}


def unpack_verdict(reply: Mapping[str, Any]) -> Verdict:
    """Inverse of :func:`pack_verdict`; a limit that was hit is a ``timeout``.

    Raises ``VerifierFault`` for any other reply.
    """
    if "limit" in reply:
        return over_limit(*reply["limit"])
    if "verdict" not in reply:
        raise VerifierFault(str(reply.get("fault", "the verifier's process sent junk")))
    status, score, evidence = reply["verdict"]
    return Verdict(VerdictStatus(status), score, evidence)


def over_limit(what: str, allowed: float) -> Verdict:
    """The verdict on what could not be checked within ``allowed`` seconds or MB (``what``)."""
    evidence = canonical_json({"limit": what, "allowed": allowed})
    return Verdict(VerdictStatus.TIMEOUT, 0.0, evidence)


def _message(fields: dict[str, Any]) -> Message:
    calls = tuple(ToolCall(**call) for call in fields["tool_calls"])
    return Message(Role(fields["role"]), fields["content"], fields["name"], calls)


def _pack(value: Any) -> Any:
    """``value`` as JSON that keeps the keys of mappings as they are, numbers for example."""
    if isinstance(value, Mapping):
        return {"pairs": [[_pack(key), _pack(item)] for key, item in value.items()]}
    if isinstance(value, list | tuple):
        return [_pack(item) for item in value]
    return value


def _unpack(value: Any) -> Any:
    if isinstance(value, dict):
        return {_unpack(key): _unpack(item) for key, item in value["pairs"]}
    if isinstance(value, list):
        return [_unpack(item) for item in value]
    return value
