"""Waiting for a change without being bound to one event loop."""

from __future__ import annotations

import asyncio


class Signal:
    """Coroutines wait, anybody notifies. Made outside any loop; usable in one after another."""

    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[None]] = []

    async def wait(self) -> None:
        """Return after the next :meth:`notify`."""
        future = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        try:
            await future
        finally:
            self._waiting.remove(future)

    def notify(self) -> None:
        """Wake everybody who waits now."""
        for future in self._waiting:
            if not future.done():
                future.set_result(None)
