"""What an environment is: asynchronous reset and step at the message level, typed endings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from hexad.contract.ending import Ending
from hexad.contract.messages import AssistantTurn, Message, ToolSchema
from hexad.contract.reward import Reward
from hexad.contract.task import Split, Task
from hexad.environments.tools import Effect


@dataclass(frozen=True, slots=True)
class Start:
    """The initial state as the agent sees it; ``state_digest`` names the state itself."""

    messages: tuple[Message, ...]
    tools: tuple[ToolSchema, ...]
    state_digest: str


@dataclass(frozen=True, slots=True)
class Step:
    """Answer to one assistant turn: observations, and an ending where the environment says so.

    ``tool_calls`` counts the calls that were executed; ``tool_seconds`` is the time they took.
    """

    messages: tuple[Message, ...] = ()
    ending: Ending | None = None
    rewards: tuple[Reward, ...] = ()
    tool_calls: int = 0
    tool_seconds: float = 0.0


@runtime_checkable
class Environment(Protocol):
    """One live episode's world. Instances are not shared between episodes.

    Raises ``EnvironmentFault`` or ``ToolFault`` for failures that the policy did not cause; what
    the policy caused comes back as an observation.
    """

    async def reset(self, task: Task, seed: int) -> Start:
        """Enter the initial state of ``task``. Equal ``task`` and ``seed`` give an equal state."""
        ...

    async def step(self, turn: AssistantTurn) -> Step:
        """Execute one assistant turn."""
        ...

    def state_digest(self) -> str | None:
        """Digest of the present state, or ``None`` where states have no identity."""
        ...

    async def close(self) -> None:
        """Release what the episode held. Safe to call twice."""
        ...


@runtime_checkable
class Forkable(Protocol):
    """An environment that can branch: optional."""

    def snapshot(self) -> bytes:
        """The state as bytes that :meth:`fork` understands."""
        ...

    def fork(self, snapshot: bytes) -> Environment:
        """A new, independent environment in the state of ``snapshot``, ``repeatable`` included.

        May be called on an environment that was never reset, of another process too.
        """
        ...


@runtime_checkable
class Repeatable(Protocol):
    """An environment that knows whether its episode may be tried again: optional."""

    @property
    def repeatable(self) -> bool:
        """False once something was started that a fresh reset does not undo."""
        ...


@dataclass(frozen=True, slots=True)
class Demonstration:
    """An expert's episode on the message level; the environment answers each of ``turns``.

    ``weights`` are the turns' shares in the loss, 1 each where there are none: a mistake that is
    shown for the sake of its recovery has weight 0.
    """

    task: Task
    turns: tuple[AssistantTurn, ...]
    weights: tuple[float, ...] = ()


@runtime_checkable
class TaskFamily(Protocol):
    """A named family of tasks and the factory of the environments that run them."""

    @property
    def name(self) -> str:
        """The name recipes use."""
        ...

    @property
    def digest(self) -> str:
        """Code digest of environment and task generator: name, version, config, source."""
        ...

    @property
    def tools(self) -> tuple[ToolSchema, ...]:
        """The tools that every task of the family offers."""
        ...

    def tasks(self, split: Split, count: int, *, offset: int = 0) -> Sequence[Task]:
        """Tasks number ``offset`` to ``offset + count`` of ``split``; equal calls, equal tasks.

        Raises ``UserError`` when a finite split holds fewer.
        """
        ...

    def make(self) -> Environment:
        """A fresh environment for one episode."""
        ...

    def demonstration(self, task: Task) -> Demonstration:
        """The expert's solution of ``task``. Raises ``UserError`` where there is no expert."""
        ...


def stratum_of(family: TaskFamily, task: Task) -> str:
    """The kind of ``task`` by which results are broken down, such as "operations 3"; "" for none.

    ``family.stratum`` may name the key of a task's data that says it; else it is ``stratum``.
    """
    key = getattr(family, "stratum", "stratum")
    return f"{key} {task.data[key]}" if key in task.data else ""


@runtime_checkable
class Declaring(Protocol):
    """A family that says what its tools may change: optional, and needed by whoever guards them."""

    @property
    def effects(self) -> Mapping[str, Effect]:
        """The effect class of every tool, by name."""
        ...


@runtime_checkable
class Finite(Protocol):
    """A family that knows how many tasks it has: optional."""

    def task_count(self, split: Split) -> int | None:
        """Number of different tasks of ``split``; ``None`` where they never end."""
        ...
