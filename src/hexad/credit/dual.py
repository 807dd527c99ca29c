"""Multipliers of constraints: one number that rises while a mean cost is over its limit."""

from __future__ import annotations

import math
from collections import deque
from typing import Any, Protocol


class Dual(Protocol):
    """A multiplier that is stepped once a batch."""

    @property
    def multiplier(self) -> float:
        """Now; never negative."""
        ...

    def step(self, cost: float) -> float:
        """The multiplier after a batch whose mean cost was ``cost``."""
        ...

    def state(self) -> dict[str, Any]:
        """All of it, as JSON values."""
        ...

    def restore(self, state: dict[str, Any]) -> None:
        """Continue exactly where :meth:`state` was taken."""
        ...


class Lagrangian:
    """``lambda <- max(0, lambda + rate * (cost - limit))``, at most ``most``.

    Source: algorithms.md 8.4; .5, rate .05, cost .3, limit .1 gives .51.
    """

    def __init__(
        self, limit: float, rate: float, *, initial: float = 0.0, most: float | None = None
    ) -> None:
        self._limit, self._rate, self._most = limit, rate, most
        self._multiplier = initial

    @property
    def multiplier(self) -> float:
        """Now."""
        return self._multiplier

    def step(self, cost: float) -> float:
        """Raises ``ValueError`` for a cost that is not finite."""
        _check(cost)
        moved = max(0.0, self._multiplier + self._rate * (cost - self._limit))
        self._multiplier = _bounded(moved, self._most)
        return self._multiplier

    def state(self) -> dict[str, Any]:
        """The multiplier."""
        return {"multiplier": self._multiplier}

    def restore(self, state: dict[str, Any]) -> None:
        """See :class:`Dual`."""
        self._multiplier = float(state["multiplier"])


class Pid:
    """The PID-Lagrangian of Stooke et al. 2020, in the positional form of omnisafe's code.

    ``delta = cost - limit``; ``I = max(0, I + ki delta)``; ``P = ema_p P + (1 - ema_p) delta``;
    ``C = ema_d C + (1 - ema_d) cost``; ``D = max(0, C - C of delay steps ago)``, of the start (0)
    while there are fewer; ``lambda = max(0, kp P + I + kd D)``, at most ``most``. ``initial`` goes
    into I. With the defaults of the code, an initial .001 and limit 25, the costs 35, 35, 20 give
    .1685, .332625, .261044 (algorithms.md 8.4).
    """

    def __init__(
        self,
        limit: float,
        gains: tuple[float, float, float],
        smoothing: tuple[float, float],
        delay: int,
        *,
        initial: float = 0.0,
        most: float | None = None,
    ) -> None:
        self._limit, self._gains, self._smoothing, self._most = limit, gains, smoothing, most
        self._integral, self._error, self._cost = initial, 0.0, 0.0
        self._costs: deque[float] = deque([0.0], maxlen=delay)
        self._multiplier = _bounded(initial, most)

    @property
    def multiplier(self) -> float:
        """Now."""
        return self._multiplier

    def step(self, cost: float) -> float:
        """Raises ``ValueError`` for a cost that is not finite."""
        _check(cost)
        kp, ki, kd = self._gains
        keep_p, keep_d = self._smoothing
        delta = cost - self._limit
        self._integral = max(0.0, self._integral + ki * delta)
        self._error = keep_p * self._error + (1 - keep_p) * delta
        self._cost = keep_d * self._cost + (1 - keep_d) * cost
        rise = max(0.0, self._cost - self._costs[0])
        self._costs.append(self._cost)
        moved = max(0.0, kp * self._error + self._integral + kd * rise)
        self._multiplier = _bounded(moved, self._most)
        return self._multiplier

    def state(self) -> dict[str, Any]:
        """Integral, averages, the costs of the last ``delay`` steps, and the multiplier."""
        return {
            "integral": self._integral,
            "error": self._error,
            "cost": self._cost,
            "costs": list(self._costs),
            "multiplier": self._multiplier,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """See :class:`Dual`."""
        self._integral, self._error = float(state["integral"]), float(state["error"])
        self._cost, self._multiplier = float(state["cost"]), float(state["multiplier"])
        self._costs.clear()
        self._costs.extend(state["costs"])


def _bounded(value: float, most: float | None) -> float:
    return value if most is None else min(value, most)


def _check(cost: float) -> None:
    if not math.isfinite(cost):
        raise ValueError(f"a mean cost is {cost}")
