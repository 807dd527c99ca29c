"""One engine for each policy version that an episode still lives by: ``refresh: at_episode``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple

from hexad.contract.faults import ContractViolation, EngineFault
from hexad.policy.engine import Engine, EngineStats, Weights
from hexad.policy.signal import Signal


class VersionedEngines:
    """Lets every episode end on the weights that it began with.

    ``make`` makes an engine that copies what is published. New episodes enter the newest version;
    an older engine is closed when its last episode leaves. At most ``most`` engines exist at once,
    each with weights and a cache of its own: ``most`` times the memory of one is the bound, and
    :meth:`publish` waits for an old episode where it would be passed. ``most`` is at least 2.
    """

    def __init__(self, make: Callable[[], Engine], *, most: int = 4) -> None:
        if most < 2:
            raise ValueError(f"old and new weights are two engines, not {most}")
        self._make, self._most = make, most
        self._newest = make()
        self._live: dict[Engine, set[str]] = {self._newest: set()}
        self._engine_of: dict[str, Engine] = {}
        self._closed_stats = EngineStats()
        self._changed = Signal()
        self._publishing = self._closed = False

    @property
    def newest(self) -> Engine:
        """The engine that new episodes enter."""
        return self._newest

    @property
    def versions(self) -> tuple[int, ...]:
        """The versions that are held, oldest first."""
        return tuple(engine.version for engine in self._live)

    @property
    def stats(self) -> EngineStats:
        """Counters over all engines, closed ones included."""
        total = self._closed_stats
        for engine in self._live:
            total = _sum(total, engine.stats)
        return total

    def enter(self, episode: str) -> Engine:
        """The engine for all requests of ``episode`` until it leaves."""
        if self._closed:
            raise EngineFault("the engines are closed")
        if episode in self._engine_of:
            raise ContractViolation(f"episode {episode} has entered already")
        self._live[self._newest].add(episode)
        self._engine_of[episode] = self._newest
        return self._newest

    async def leave(self, episode: str) -> None:
        """``episode`` has made its last request."""
        engine = self._engine_of.pop(episode)
        self._live[engine].remove(episode)
        await self._let_go(engine)
        self._changed.notify()

    async def publish(self, weights: Weights, version: int) -> None:
        """Give new episodes ``weights`` as ``version``; those that live go on with their own."""
        if self._publishing:
            raise ContractViolation(f"version {version} is published during another publish")
        self._publishing = True
        try:
            while self._live[self._newest] and len(self._live) >= self._most and not self._closed:
                await self._changed.wait()
            if self._closed:
                raise EngineFault("the engines are closed")
            if not self._live[self._newest]:
                await self._newest.publish(weights, version)
                return
            made = self._make()
            await made.publish(weights, version)
            before, self._newest = self._newest, made
            self._live[made] = set()
            await self._let_go(before)
        finally:
            self._publishing = False

    async def close(self) -> None:
        """Close every engine; their open requests are aborted."""
        self._closed = True
        for engine in self._live:
            await engine.close()
        self._changed.notify()

    async def _let_go(self, engine: Engine) -> None:
        if engine is self._newest or self._live.get(engine, True):
            return
        del self._live[engine]
        self._closed_stats = _sum(self._closed_stats, engine.stats)
        await engine.close()


def _sum(left: EngineStats, right: EngineStats) -> EngineStats:
    return EngineStats(*(a + b for a, b in zip(astuple(left), astuple(right), strict=True)))
