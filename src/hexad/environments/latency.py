"""Slow calls: seconds drawn from a distribution, the same ones for the same call."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from statistics import NormalDist
from typing import Any, Literal

from hexad.contract.task import Split
from hexad.environments.protocol import Step
from hexad.environments.wrap import Moment, Work, uniform


@dataclass(frozen=True, slots=True)
class Latency:
    """Seconds that a call waits before it is executed, by the inverse of the distribution.

    ``constant``: ``mean``. ``lognormal``: exp(N(ln mean - sigma^2/2, sigma)). ``pareto``: from
    ``mean (alpha - 1)/alpha`` upwards with tail index ``alpha`` > 1; up to 2 its variance is
    infinite. ``mean`` is the distribution's, before ``cap`` cuts its tail. Tasks of other splits
    than ``splits`` do not wait, so that evaluations are not slow for nothing.
    """

    kind: Literal["constant", "lognormal", "pareto"]
    mean: float
    sigma: float | None = None
    alpha: float | None = None
    cap: float | None = None
    at: Literal["step", "reset", "both"] = "step"
    splits: tuple[Split, ...] = (Split.TRAIN,)

    @property
    def config(self) -> Mapping[str, Any]:
        """Every field."""
        return {"latency": asdict(self)}

    def quantile(self, u: float) -> float:
        """Seconds that a share ``u`` of all waits does not exceed; 0 < u < 1."""
        seconds = self.mean
        if self.kind == "lognormal":
            assert self.sigma is not None
            middle = math.log(self.mean) - self.sigma**2 / 2
            seconds = math.exp(middle + self.sigma * NormalDist().inv_cdf(u))
        elif self.kind == "pareto":
            assert self.alpha is not None
            least = self.mean * (self.alpha - 1) / self.alpha
            seconds = least * (1 - u) ** (-1 / self.alpha)
        return seconds if self.cap is None else min(seconds, self.cap)

    def seconds(self, moment: Moment) -> float:
        """How long the call of ``moment`` waits; 0 where latency does not apply."""
        call = "reset" if moment.turn == 0 else "step"
        if moment.split not in self.splits or self.at not in (call, "both"):
            return 0.0
        return self.quantile(uniform("latency", moment.seed, moment.turn))

    async def around(self, moment: Moment, work: Work) -> Any:
        """Wait, then do the call; a step counts the wait among its ``tool_seconds``."""
        seconds = self.seconds(moment)
        if seconds == 0.0:
            return await work()
        await asyncio.sleep(seconds)
        answer = await work()
        if isinstance(answer, Step) and isinstance(answer.tool_seconds, int | float):
            return replace(answer, tool_seconds=answer.tool_seconds + seconds)
        return answer
