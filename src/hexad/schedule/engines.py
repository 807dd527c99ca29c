"""The engines of a worker by ``timing.refresh``: who samples for which episode."""

from __future__ import annotations

from functools import partial
from typing import Protocol

from hexad.policy.engine import Engine, EngineStats, Refresh, Weights
from hexad.policy.local import LocalEngine
from hexad.policy.policy import Policy
from hexad.policy.versions import VersionedEngines
from hexad.recipe.axes import Recipe


class Engines(Protocol):
    """What a worker samples from; each episode enters before its first request, and leaves."""

    @property
    def newest(self) -> Engine:
        """The engine that a new episode would enter."""
        ...

    @property
    def stats(self) -> EngineStats:
        """Counters over all engines."""
        ...

    def enter(self, episode: str) -> Engine:
        """The engine for all requests of ``episode`` in this sitting."""
        ...

    async def leave(self, episode: str) -> None:
        """``episode`` has made its last request."""
        ...

    async def publish(self, weights: Weights, version: int) -> None:
        """Load ``weights`` as ``version``, for whom ``timing.refresh`` says."""
        ...

    async def close(self) -> None:
        """Abort open requests and release memory."""
        ...


class OneEngine:
    """One engine for all: a running episode takes new weights ``at_turn`` or ``in_flight``."""

    def __init__(self, engine: Engine, refresh: Refresh) -> None:
        self._engine, self._refresh = engine, refresh

    @property
    def newest(self) -> Engine:
        """See :class:`Engines`."""
        return self._engine

    @property
    def stats(self) -> EngineStats:
        """See :class:`Engines`."""
        return self._engine.stats

    def enter(self, episode: str) -> Engine:
        """See :class:`Engines`."""
        return self._engine

    async def leave(self, episode: str) -> None:
        """See :class:`Engines`."""

    async def publish(self, weights: Weights, version: int) -> None:
        """See :class:`Engines`."""
        await self._engine.publish(weights, version, self._refresh)

    async def close(self) -> None:
        """See :class:`Engines`."""
        await self._engine.close()


def engines_of(recipe: Recipe, policy: Policy) -> Engines:
    """The engines that ``recipe`` asks for, with weights of their own."""
    make = partial(LocalEngine, policy, rows=recipe.system.engine_rows, bind=False)
    refresh = recipe.timing.refresh or "at_turn"
    return VersionedEngines(make) if refresh == "at_episode" else OneEngine(make(), refresh)
