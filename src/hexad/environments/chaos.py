"""Calls that go wrong by a draw: crash, hang, junk and a slow start."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from hexad.contract.task import Split
from hexad.environments.protocol import Step
from hexad.environments.wrap import Moment, Work, uniform


class ChaosError(RuntimeError):
    """A failure that the recipe asked for. Nothing catches it: it is treated like any other."""


JUNK: tuple[object, ...] = (None, "junk", Step(messages="junk"))  # type: ignore[arg-type]
"""What a call may return instead of an observation."""


@dataclass(frozen=True, slots=True)
class Chaos:
    """Probabilities, each of one call (a reset or a step), of failing in one way.

    ``crash`` raises before the call is executed; ``hang`` never returns, until the patience of the
    trainer ends it; ``junk`` executes it and returns no observation. They exclude each other, so
    they add up to at most 1. ``slow_start`` is the probability that a reset takes ``slow_seconds``
    longer. A further attempt has another seed and so other luck. Tasks of other splits than
    ``splits`` are left alone.
    """

    crash: float = 0.0
    hang: float = 0.0
    junk: float = 0.0
    slow_start: float = 0.0
    slow_seconds: float = 0.0
    splits: tuple[Split, ...] = (Split.TRAIN,)

    @property
    def config(self) -> Mapping[str, Any]:
        """Every field."""
        return {"chaos": asdict(self)}

    def fate(self, moment: Moment) -> str:
        """``crash``, ``hang``, ``junk``, or the empty string for a call that goes well."""
        if moment.split not in self.splits:
            return ""
        point = uniform("chaos", moment.seed, moment.turn)
        for name in ("crash", "hang", "junk"):
            if point < getattr(self, name):
                return name
            point -= getattr(self, name)
        return ""

    def slow(self, moment: Moment) -> bool:
        """Whether this reset is a slow one."""
        if moment.turn > 0 or moment.split not in self.splits:
            return False
        return uniform("slow_start", moment.seed, 0) < self.slow_start

    async def around(self, moment: Moment, work: Work) -> Any:
        """The call, or what becomes of it."""
        fate = self.fate(moment)
        if self.slow(moment):
            await asyncio.sleep(self.slow_seconds)
        if fate == "crash":
            raise ChaosError(f"chaos: call {moment.turn} crashed")
        if fate == "hang":
            await asyncio.Event().wait()
        answer = await work()
        if fate == "junk":
            return JUNK[int(uniform("junk", moment.seed, moment.turn) * len(JUNK))]
        return answer
