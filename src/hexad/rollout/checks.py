"""Junk from another side of a boundary becomes that boundary's fault, before it is recorded."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from hexad.contract.ending import CENSORED, FAULTED, Ending, EndingKind
from hexad.contract.faults import EngineFault, EnvironmentFault
from hexad.contract.messages import Message, Role, ToolSchema
from hexad.contract.reward import Reward
from hexad.environments.protocol import Start, Step
from hexad.policy.engine import Completion, Request, Stop


def check_start(start: object, tools: tuple[ToolSchema, ...]) -> Start:
    """``start`` if it is one and offers the family's ``tools``; else ``EnvironmentFault``."""
    if not isinstance(start, Start):
        raise EnvironmentFault(f"reset returned a {type(start).__name__}, not a Start")
    _check_messages("reset", start.messages)
    if not start.messages:
        raise EnvironmentFault("reset returned no message")
    if not isinstance(start.state_digest, str) or not start.state_digest:
        raise EnvironmentFault("reset returned no state digest")
    if start.tools != tools:
        raise EnvironmentFault("reset offers other tools than the family declares")
    return start


def check_step(step: object) -> Step:
    """``step`` if it is one; else ``EnvironmentFault``. An ending that is a fault is raised."""
    if not isinstance(step, Step):
        raise EnvironmentFault(f"step returned a {type(step).__name__}, not a Step")
    _check_messages("step", step.messages)
    _check_ending(step.ending)
    _check_rewards(step.rewards)
    _check_number("tool_calls", step.tool_calls, int)
    _check_number("tool_seconds", step.tool_seconds, (int, float))
    return step


def check_state(state: object) -> str | None:
    """``state`` if it is a digest or nothing; else ``EnvironmentFault``."""
    if state is not None and (not isinstance(state, str) or not state):
        raise EnvironmentFault(f"state_digest returned {state!r}, neither text nor None")
    return state


def check_completion(completion: Completion, request: Request) -> Completion:
    """``completion`` if it can be recorded; else ``EngineFault``."""
    count = len(completion.ids)
    if completion.stop is Stop.ABORT:
        raise EngineFault("the request was aborted")
    if not 0 < count <= request.max_tokens:
        raise EngineFault(f"{count} tokens sampled, 1 to {request.max_tokens} wanted")
    if len(completion.logprobs) != count or len(completion.versions) != count:
        raise EngineFault("ids, log-probs and versions have different lengths")
    if not np.isfinite(completion.logprobs).all():
        raise EngineFault("non-finite log-probs")
    if (completion.versions < 0).any():
        raise EngineFault("a sampled token has no version")
    return completion


def _check_messages(where: str, messages: Sequence[Message]) -> None:
    if not isinstance(messages, tuple):
        raise EnvironmentFault(f"{where} returned messages as a {type(messages).__name__}")
    for message in messages:
        if not isinstance(message, Message) or not isinstance(message.content, str):
            raise EnvironmentFault(f"{where} returned {message!r}, not a Message with text")
        if not isinstance(message.role, Role):
            raise EnvironmentFault(f"{where} returned a message of the role {message.role!r}")
        if message.name is not None and not isinstance(message.name, str):
            raise EnvironmentFault(f"{where} returned a message of the name {message.name!r}")
        try:
            message.content.encode()
        except UnicodeEncodeError as error:
            raise EnvironmentFault(f"{where} returned text that is not Unicode: {error}") from error


def _check_ending(ending: Ending | None) -> None:
    if ending is None:
        return
    if not isinstance(ending, Ending) or not isinstance(ending.kind, EndingKind):
        raise EnvironmentFault(f"step returned the ending {ending!r}")
    if not isinstance(ending.reason, str) or not _storable(ending.reason):
        raise EnvironmentFault(f"step returned the reason {ending.reason!r}")
    if ending.kind in FAULTED or ending.kind in CENSORED:
        raise EnvironmentFault(f"the environment gave up: {ending.kind} {ending.reason}".rstrip())
    if ending.terminated == ending.truncated:
        raise EnvironmentFault(f"step set terminated and truncated to {ending.terminated} both")


def _check_rewards(rewards: Sequence[Reward]) -> None:
    if not isinstance(rewards, tuple):
        raise EnvironmentFault(f"step returned rewards as a {type(rewards).__name__}")
    for reward in rewards:
        good = isinstance(reward, Reward) and isinstance(reward.component, str)
        if not good or not _finite(reward.value):
            raise EnvironmentFault(f"step returned the reward {reward!r}")


def _check_number(name: str, value: object, kind: type | tuple[type, ...]) -> None:
    if not isinstance(value, kind) or not isinstance(value, int | float) or not 0 <= value < 2**63:
        raise EnvironmentFault(f"step returned {name} {value!r}")


def _finite(value: object) -> bool:
    """Whether ``value`` is a number with a finite float64."""
    try:
        return isinstance(value, int | float) and math.isfinite(value)
    except OverflowError:
        return False


def _storable(text: str) -> bool:
    return text == text.encode("utf-8", "replace").decode("utf-8")
