"""The environment of a question that is answered with tools: its end is a plain answer."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from hexad.contract.digest import canonical_json, digest
from hexad.contract.ending import Ending, EndingKind
from hexad.contract.faults import ContractViolation
from hexad.contract.messages import AssistantTurn, Message, Role, ToolCall
from hexad.contract.task import Split, Task
from hexad.environments.protocol import Start, Step
from hexad.environments.toolbox import ToolBox

CUT = "error: the turn was cut off; nothing was executed"
"""Observation after an incomplete turn. A trainer whose own limit cut it truncates instead."""


@dataclass(frozen=True, slots=True)
class _State:
    """``calls`` holds name, arguments and result of every executed call, in order."""

    task: Task
    calls: tuple[tuple[str, dict[str, Any], str], ...] = ()
    over: bool = False


class ToolConversation:
    """Shows ``task.data[field]`` to the agent and executes its calls until it answers without one.

    Only that field of the task is ever shown. An assistant turn without a tool call ends the
    episode (``terminal``, ``answered``), an empty one too. Several calls of one turn are executed
    in order. An incomplete turn executes nothing. The state is the task and the executed calls, so
    the seed changes nothing.
    """

    def __init__(self, tools: ToolBox, field: str) -> None:
        self._tools, self._field = tools, field
        self._state: _State | None = None
        self._contained = True

    @property
    def repeatable(self) -> bool:
        """False once a call was started that a fresh reset does not undo."""
        return self._contained

    async def reset(self, task: Task, seed: int) -> Start:
        """Enter the initial state of ``task``. Raises ``ContractViolation`` for a foreign task."""
        text = task.data.get(self._field)
        if not isinstance(text, str):
            raise ContractViolation(f"task {task.task_id} has no text {self._field!r}")
        self._state = _State(task)
        question = (Message(Role.USER, text),)
        return Start(question, self._tools.schemas, self.state_digest())

    async def step(self, turn: AssistantTurn) -> Step:
        """Execute one assistant turn. Raises ``ToolFault`` for what the policy did not cause."""
        state = self._live()
        if not turn.complete:
            return Step((Message(Role.USER, CUT),))
        if not turn.tool_calls:
            self._state = _State(state.task, state.calls, over=True)
            return Step(ending=Ending.of(EndingKind.TERMINAL, "answered"))
        messages, seconds, executed = [], 0.0, 0
        for call in turn.tool_calls:
            self._note(call)
            result = await self._tools.call(call)
            name = call.name if self._tools.effect(call.name) else None
            messages.append(Message(Role.TOOL, result.content, name=name))
            seconds += result.seconds
            if result.effect is not None:
                executed += 1
                state = self._live()
                done = (call.name, dict(call.arguments), result.content)
                self._state = _State(state.task, (*state.calls, done))
        return Step(tuple(messages), tool_calls=executed, tool_seconds=seconds)

    def state_digest(self) -> str:
        """Digest of the task's id and the executed calls."""
        state = self._present()
        return digest([state.task.task_id, state.calls, state.over])

    def snapshot(self) -> bytes:
        """The state as JSON, and whether a reset undoes what was done."""
        state = self._present()
        task = {"task_id": state.task.task_id, "split": state.task.split}
        content = {"task": {**task, "data": dict(state.task.data)}, "calls": state.calls}
        marks = {"over": state.over, "contained": self._contained}
        return canonical_json(content | marks).encode()

    def fork(self, snapshot: bytes) -> ToolConversation:
        """A new environment in the state of ``snapshot``. Raises ``ValueError`` for other bytes."""
        content = json.loads(snapshot)
        task = content["task"]
        calls = tuple((name, arguments, text) for name, arguments, text in content["calls"])
        copy = ToolConversation(self._tools, self._field)
        copy._contained = content["contained"]
        copy._state = _State(
            Task(task["task_id"], Split(task["split"]), task["data"]), calls, content["over"]
        )
        return copy

    async def close(self) -> None:
        """Forget the episode; the tools are the family's."""
        self._state = None

    def _note(self, call: ToolCall) -> None:
        effect = self._tools.effect(call.name) if call.error is None else None
        self._contained = self._contained and (effect is None or effect.contained)

    def _present(self) -> _State:
        if self._state is None:
            raise ContractViolation("the environment was not reset")
        return self._state

    def _live(self) -> _State:
        state = self._present()
        if state.over:
            raise ContractViolation("a step after the end of the episode")
        return state
