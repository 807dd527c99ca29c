"""A family whose calls are disturbed: made slower or made to fail, and the same in all else."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from hexad.contract.digest import canonical_json, code_digest, digest
from hexad.contract.messages import AssistantTurn, Message, ToolSchema
from hexad.contract.task import Split, Task
from hexad.environments.advice import Advising
from hexad.environments.protocol import (
    Declaring,
    Demonstration,
    Environment,
    Finite,
    Forkable,
    Repeatable,
    Start,
    Step,
    TaskFamily,
)
from hexad.environments.tools import Effect

Work = Callable[[], Awaitable[Any]]
"""A call of the environment that was not made yet."""
_VERSION = "1"


@dataclass(frozen=True, slots=True)
class Moment:
    """Which call it is: ``turn`` 0 is the reset, ``turn`` t the step after assistant turn t.

    ``seed`` is the environment's, and so stands for run, group, member and attempt.
    """

    split: Split
    seed: int
    turn: int


def uniform(purpose: str, seed: int, turn: int) -> float:
    """A number in (0, 1) that depends on nothing but its arguments.

    Philox-4x64-10 (Salmon et al. 2011), keyed by ``purpose`` and ``seed``, with ``turn`` as its
    counter. An odd multiple of 2**-54, so a quantile function never meets 0 or 1.
    """
    key = int(digest([purpose, seed])[:32], 16)
    word = int(np.random.Philox(key=key, counter=turn).random_raw(1)[0])
    return ((word >> 11) + 0.5) * 2.0**-53


class Disturbance(Protocol):
    """Something that happens to calls of an environment."""

    @property
    def config(self) -> Mapping[str, Any]:
        """What decides it, as JSON: part of the family's digest."""
        ...

    async def around(self, moment: Moment, work: Work) -> Any:
        """What the call of ``moment`` returns; ``work`` does it undisturbed."""
        ...


class DisturbedFamily:
    """``inner`` with environments that ``disturbances`` act on, the first one outermost.

    Name, tools, tasks and demonstrations are ``inner``'s own, as is every further attribute. The
    digest covers the disturbances, as they decide which episodes fault and how long they take.
    """

    def __init__(self, inner: TaskFamily, disturbances: Sequence[Disturbance]) -> None:
        self.inner = inner
        self._disturbances = tuple(disturbances)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    @property
    def name(self) -> str:
        """The name that recipes use."""
        return self.inner.name

    @functools.cached_property
    def digest(self) -> str:
        """Digest of the family and of what disturbs it."""
        config = {
            "inner": self.inner.digest,
            "disturbances": [dict(one.config) for one in self._disturbances],
        }
        sources = [sys.modules[type(one).__module__] for one in self._disturbances]
        return code_digest("disturbed", _VERSION, config, sys.modules[__name__], *sources)

    @property
    def tools(self) -> tuple[ToolSchema, ...]:
        """The tools of ``inner``."""
        return self.inner.tools

    def tasks(self, split: Split, count: int, *, offset: int = 0) -> Sequence[Task]:
        """The tasks of ``inner``."""
        return self.inner.tasks(split, count, offset=offset)

    def make(self) -> Environment:
        """A fresh environment, disturbed."""
        return _environment(self.inner.make(), self._disturbances, None)

    def demonstration(self, task: Task) -> Demonstration:
        """The demonstration of ``inner``."""
        return self.inner.demonstration(task)


def disturb(family: TaskFamily, disturbances: Sequence[Disturbance]) -> TaskFamily:
    """``family`` disturbed, with exactly the optional abilities that it has itself."""
    if not disturbances:
        return family
    wanted = ((Declaring, _Declares), (Finite, _Counts), (Advising, _Advises))
    return _shape(DisturbedFamily, family, wanted)(family, disturbances)  # type: ignore[no-any-return]


def undisturbed(family: TaskFamily) -> TaskFamily:
    """``family`` without anything that disturbs it."""
    while isinstance(family, DisturbedFamily):
        family = family.inner
    return family


class DisturbedEnvironment:
    """One episode's ``inner`` environment; resets and steps go through the disturbances."""

    def __init__(
        self, inner: Any, disturbances: tuple[Disturbance, ...], moment: Moment | None
    ) -> None:
        self._inner, self._disturbances, self._moment = inner, disturbances, moment

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def reset(self, task: Task, seed: int) -> Start:
        """Enter the initial state of ``task``: call number 0."""
        self._moment = Moment(task.split, seed, 0)
        return await self._call(lambda: self._inner.reset(task, seed))  # type: ignore[no-any-return]

    async def step(self, turn: AssistantTurn) -> Step:
        """Execute one assistant turn: calls number 1, 2, ..."""
        if self._moment is not None:
            before = self._moment
            self._moment = Moment(before.split, before.seed, before.turn + 1)
        return await self._call(lambda: self._inner.step(turn))  # type: ignore[no-any-return]

    async def close(self) -> None:
        """Close ``inner``, undisturbed."""
        await self._inner.close()

    async def _call(self, work: Work) -> Any:
        if self._moment is None:  # a step without a reset: the environment's own error
            return await work()
        for one in reversed(self._disturbances):
            work = functools.partial(one.around, self._moment, work)
        return await work()


def _environment(
    inner: Any, disturbances: tuple[Disturbance, ...], moment: Moment | None
) -> Environment:
    wanted = ((Forkable, _Forks), (Repeatable, _Repeats))
    return _shape(DisturbedEnvironment, inner, wanted)(inner, disturbances, moment)  # type: ignore[no-any-return]


def _shape(base: type[Any], inner: object, wanted: Sequence[tuple[Any, type[Any]]]) -> type[Any]:
    """``base`` with a mixin for each optional protocol that ``inner`` satisfies."""
    found = tuple(mixin for protocol, mixin in wanted if isinstance(inner, protocol))
    return _made(base, found)  # type: ignore[arg-type]


@functools.cache
def _made(base: type[Any], mixins: tuple[type[Any], ...]) -> type[Any]:
    return type(base.__name__, (*mixins, base), {"__doc__": base.__doc__})


class _Declares(DisturbedFamily):
    @property
    def effects(self) -> Mapping[str, Effect]:
        """The effect classes of ``inner``."""
        return self.inner.effects  # type: ignore[attr-defined, no-any-return]


class _Counts(DisturbedFamily):
    def task_count(self, split: Split) -> int | None:
        """The number of tasks of ``inner``."""
        return self.inner.task_count(split)  # type: ignore[attr-defined, no-any-return]


class _Advises(DisturbedFamily):
    def advice(self, task: Task, transcript: Sequence[Message]) -> tuple[AssistantTurn, ...]:
        """The advice of ``inner``."""
        return self.inner.advice(task, transcript)  # type: ignore[attr-defined, no-any-return]


class _Repeats(DisturbedEnvironment):
    @property
    def repeatable(self) -> bool:
        """Whether ``inner`` may be tried again."""
        return self._inner.repeatable  # type: ignore[no-any-return]


class _Forks(DisturbedEnvironment):
    def snapshot(self) -> bytes:
        """The state of ``inner`` after a line that says which call came last."""
        state, moment = self._inner.snapshot(), self._moment
        head = None if moment is None else [moment.split, moment.seed, moment.turn]
        return canonical_json(head).encode() + b"\n" + bytes(state)

    def fork(self, snapshot: bytes) -> Environment:
        """``inner`` forked; what disturbs the next calls is what disturbs them here.

        Raises ``ValueError`` for bytes that are no snapshot of a disturbed environment.
        """
        head, line, state = snapshot.partition(b"\n")
        if not line:
            raise ValueError("this is no snapshot of a disturbed environment")
        said = json.loads(head)
        moment = None if said is None else Moment(Split(said[0]), int(said[1]), int(said[2]))
        return _environment(self._inner.fork(state), self._disturbances, moment)
