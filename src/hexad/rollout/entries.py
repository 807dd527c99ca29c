"""The entries of an episode's log, and their Arrow form: one record batch of one row each."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from hexad.contract.arrays import frozen
from hexad.contract.ending import Ending, EndingKind
from hexad.contract.faults import FaultRecord
from hexad.contract.messages import Message, Role, ToolCall
from hexad.contract.refusal import Refusal, RefusalReason
from hexad.contract.reward import Owner, OwnerKind, Reward
from hexad.contract.segment import Span, SpanKind
from hexad.contract.support import Support
from hexad.environments.protocol import Step
from hexad.policy.engine import Completion, Stop
from hexad.policy.render import Rendered

LOG_VERSION = 1
"""Version of the stored form of a log."""
VERSION_KEY = b"hexad_log"
"""Metadata key that holds the version in decimal."""


def _list(kind: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", kind, nullable=False))


SCHEMA = pa.schema(
    [
        pa.field("kind", pa.string(), nullable=False),
        pa.field("at", pa.float64(), nullable=False),
        pa.field("facts", pa.string(), nullable=False),
        pa.field("ids", _list(pa.int32())),
        pa.field("logprobs", _list(pa.float32())),
        pa.field("versions", _list(pa.int32())),
        pa.field("support_ids", _list(pa.int32())),
        pa.field("support_offsets", _list(pa.int64())),
        pa.field("snapshot", pa.binary()),
    ],
    metadata={VERSION_KEY: str(LOG_VERSION)},
)
"""Columns of a log. ``at`` is seconds of play in the attempt; ``facts`` is JSON."""
_TYPES = {each.name: each.type for each in SCHEMA}
_NULLS = {each.name: pa.nulls(1, each.type) for each in SCHEMA if each.nullable}


@dataclass(frozen=True, slots=True)
class Spent:
    """What earlier attempts of an episode consumed, and ``seconds`` of play that they took."""

    faults: tuple[FaultRecord, ...] = ()
    lost_tokens: int = 0
    tool_calls: int = 0
    engine_seconds: float = 0.0
    tool_seconds: float = 0.0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class State:
    """Where an environment is: its digest, and its snapshot if it can fork.

    ``repeatable`` says whether a reset undoes what was done; ``None`` if nobody can tell.
    """

    digest: str | None = None
    snapshot: bytes | None = None
    repeatable: bool | None = None


@dataclass(frozen=True, slots=True)
class Seated:
    """A sitting begins: some worker plays the episode from ``time`` (Unix, seconds) on."""

    time: float
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Begun:
    """Attempt number ``attempt`` at ``episode`` has been reset.

    ``prompt`` is what the policy is shown, ``initial`` the digest that the reset named.
    """

    episode: str
    attempt: int
    prompt: Rendered
    initial: str
    state: State
    spent: Spent = field(default_factory=Spent)
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Sampled:
    """Tokens of a turn. A ``partial`` one was cut by a pause and goes on in the next entry."""

    completion: Completion
    seconds: float
    partial: bool = False
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Stepped:
    """The environment's answer to a turn, and the state that it left.

    With ``refusals`` the environment never saw the turn. ``waited`` is seconds for an approval.
    """

    step: Step
    state: State
    at: float = 0.0
    refusals: tuple[Refusal, ...] = ()
    waited: float = 0.0


@dataclass(frozen=True, slots=True)
class Left:
    """A sitting ended in a pause; ``faults`` are those of letting the environment go."""

    faults: tuple[FaultRecord, ...] = ()
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Restarted:
    """All that was recorded before cannot go on: its tokens are lost, the episode starts afresh."""

    at: float = 0.0


Entry: TypeAlias = Seated | Begun | Sampled | Stepped | Left | Restarted


def to_batch(entry: Entry) -> pa.RecordBatch:
    """``entry`` as a batch of one row. Raises ``TypeError`` or ``ValueError`` for what is no JSON.

    That can only be a tool call inside an environment's message.
    """
    columns = dict(_NULLS)
    facts = json.dumps(_WRITE[type(entry)](entry), allow_nan=False)
    kind = type(entry).__name__.lower()
    for name, value in (("kind", kind), ("at", entry.at), ("facts", facts)):
        columns[name] = pa.array([value], _TYPES[name])
    if isinstance(entry, Begun):
        columns["ids"] = _cell("ids", entry.prompt.ids)
    if isinstance(entry, Begun | Stepped) and entry.state.snapshot is not None:
        columns["snapshot"] = pa.array([entry.state.snapshot], _TYPES["snapshot"])
    if isinstance(entry, Sampled):
        made = entry.completion
        for name in ("ids", "logprobs", "versions"):
            columns[name] = _cell(name, getattr(made, name))
        if made.support is not None:
            columns["support_ids"] = _cell("support_ids", made.support.ids)
            columns["support_offsets"] = _cell("support_offsets", made.support.offsets)
    return pa.RecordBatch.from_arrays([columns[name] for name in _TYPES], schema=SCHEMA)


def _cell(name: str, values: Any) -> pa.Array:
    """A list column of one row, from a whole array: this runs for every turn of every episode."""
    kind = _TYPES[name]
    offsets = pa.array([0, len(values)], pa.int32())
    # from_pandas=False: NaN is a value here, not a null.
    flat = pa.array(values, kind.value_type, from_pandas=False)
    return pa.ListArray.from_arrays(offsets, flat, type=kind)


def from_batch(batch: pa.RecordBatch) -> Entry:
    """Inverse of :func:`to_batch`; floats keep every bit."""
    row = {name: batch.column(name)[0] for name in SCHEMA.names}
    facts = json.loads(row["facts"].as_py())
    return _READ[row["kind"].as_py()](row, facts, row["at"].as_py())


def _array(cell: Any, dtype: type) -> Any:
    return frozen(cell.values.to_numpy(zero_copy_only=False), dtype)


def _write_begun(entry: Begun) -> dict[str, Any]:
    return {
        "episode": entry.episode,
        "attempt": entry.attempt,
        "spans": [asdict(span) for span in entry.prompt.spans],
        "initial": entry.initial,
        "state": _write_state(entry.state),
        "spent": asdict(entry.spent),
    }


def _read_begun(row: Mapping[str, Any], facts: dict[str, Any], at: float) -> Begun:
    spans = tuple(Span(**each | {"kind": SpanKind(each["kind"])}) for each in facts["spans"])
    spent = facts["spent"] | {"faults": _read_faults(facts["spent"]["faults"])}
    return Begun(
        facts["episode"],
        facts["attempt"],
        Rendered(_array(row["ids"], np.int32), spans),
        facts["initial"],
        _read_state(facts["state"], row),
        Spent(**spent),
        at,
    )


def _write_sampled(entry: Sampled) -> dict[str, Any]:
    return {
        "stop": entry.completion.stop,
        "seconds": entry.seconds,
        "partial": entry.partial,
    }


def _read_sampled(row: Mapping[str, Any], facts: dict[str, Any], at: float) -> Sampled:
    support = None
    if row["support_ids"].is_valid:
        support = Support(
            _array(row["support_ids"], np.int32), _array(row["support_offsets"], np.int64)
        )
    completion = Completion(
        _array(row["ids"], np.int32),
        _array(row["logprobs"], np.float32),
        _array(row["versions"], np.int32),
        Stop(facts["stop"]),
        support,
    )
    return Sampled(completion, facts["seconds"], facts["partial"], at)


def _write_stepped(entry: Stepped) -> dict[str, Any]:
    step = entry.step
    return {
        "messages": [_write_message(message) for message in step.messages],
        "ending": asdict(step.ending) if step.ending else None,
        "rewards": [asdict(reward) for reward in step.rewards],
        "tool_calls": step.tool_calls,
        "tool_seconds": step.tool_seconds,
        "state": _write_state(entry.state),
        "refusals": [asdict(refusal) for refusal in entry.refusals],
        "waited": entry.waited,
    }


def _read_stepped(row: Mapping[str, Any], facts: dict[str, Any], at: float) -> Stepped:
    state = _read_state(facts.pop("state"), row)
    refusals = tuple(
        Refusal(**each | {"reason": RefusalReason(each["reason"])})
        for each in facts.pop("refusals", ())
    )
    waited = facts.pop("waited", 0.0)
    ending = facts["ending"]
    replaced = {
        "messages": tuple(_read_message(each) for each in facts["messages"]),
        "ending": ending and Ending(**ending | {"kind": EndingKind(ending["kind"])}),
        "rewards": tuple(_read_reward(each) for each in facts["rewards"]),
    }
    return Stepped(Step(**facts | replaced), state, at, refusals, waited)


def _write_state(state: State) -> dict[str, Any]:
    return {"digest": state.digest, "repeatable": state.repeatable}


def _read_state(facts: dict[str, Any], row: Mapping[str, Any]) -> State:
    return State(facts["digest"], row["snapshot"].as_py(), facts["repeatable"])


def _write_message(message: Message) -> dict[str, Any]:
    calls = [asdict(call) | {"arguments": dict(call.arguments)} for call in message.tool_calls]
    return {"role": message.role, "content": message.content, "name": message.name, "calls": calls}


def _read_message(facts: dict[str, Any]) -> Message:
    calls = tuple(ToolCall(**call) for call in facts["calls"])
    return Message(Role(facts["role"]), facts["content"], facts["name"], calls)


def _read_reward(facts: dict[str, Any]) -> Reward:
    owner = facts["owner"]
    return Reward(
        facts["component"], facts["value"], Owner(**owner | {"kind": OwnerKind(owner["kind"])})
    )


def _read_faults(facts: list[dict[str, Any]]) -> tuple[FaultRecord, ...]:
    return tuple(FaultRecord(**each) for each in facts)


_WRITE: dict[type, Callable[[Any], dict[str, Any]]] = {
    Seated: lambda entry: {"time": entry.time},
    Begun: _write_begun,
    Sampled: _write_sampled,
    Stepped: _write_stepped,
    Left: lambda entry: {"faults": [asdict(each) for each in entry.faults]},
    Restarted: lambda entry: {},
}
_READ: dict[str, Callable[[Mapping[str, Any], dict[str, Any], float], Entry]] = {
    "seated": lambda row, facts, at: Seated(facts["time"], at),
    "begun": _read_begun,
    "sampled": _read_sampled,
    "stepped": _read_stepped,
    "left": lambda row, facts, at: Left(_read_faults(facts["faults"]), at),
    "restarted": lambda row, facts, at: Restarted(at),
}
