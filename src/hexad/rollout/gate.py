"""Logical ticks: the engine sees requests in an order that no clock and no thread decides."""

from __future__ import annotations

import asyncio

from hexad.policy.engine import Completion, Engine, Request


class TickGate:
    """Holds requests until every live episode waits here or has left, then lets all in by index.

    An episode is *busy* from :meth:`enter`, except while it waits for the gate to open, until
    :meth:`leave`. A tick ends when nobody is busy. So which requests the engine gets together, and
    in which order, depends on what the episodes do and not on how long it takes.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._busy = 0
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._quiet = asyncio.Event()
        self._quiet.set()

    def enter(self) -> None:
        """An episode begins."""
        self._busy += 1
        self._quiet.clear()

    def leave(self) -> None:
        """An episode has made its last request."""
        self._rest()

    async def quiet(self) -> None:
        """Wait until every live episode waits at the gate."""
        await self._quiet.wait()

    def open(self) -> None:
        """Let every waiting request in, in the order of the episodes' indices."""
        waiting, self._waiting = self._waiting, {}
        for index in sorted(waiting):
            self.enter()
            waiting[index].set_result(None)

    async def sample(self, index: int, request: Request) -> Completion:
        """Sample ``request`` of episode ``index`` in the next tick."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[index] = turn
        self._rest()
        await turn
        return await self._engine.sample(request)

    def _rest(self) -> None:
        self._busy -= 1
        if self._busy == 0:
            self._quiet.set()
