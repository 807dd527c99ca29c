"""Threads for environments in a process that never ends: what hung once is let go."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from hexad.rollout.host import Hosts

GRACE_SECONDS = 5.0
"""How long environments that hung have to close once nobody plays beside them."""


class Berths:
    """Lends the same ``Hosts`` to all episodes, and new ones once a thread of them has hung.

    The old ones end after the last episode that uses them, so that environments that hang leave at
    most their own blocked threads behind. Use from one event loop.
    """

    def __init__(self, grace: float = GRACE_SECONDS) -> None:
        self._grace = grace
        self._used: dict[Hosts, int] = {}
        self._newest: Hosts | None = None
        self._leaving: dict[Hosts, asyncio.TimerHandle] = {}

    @contextmanager
    def berth(self) -> Iterator[Hosts]:
        """Hosts for one episode."""
        hosts = self._newest
        if hosts is None or hosts.worn:
            hosts = self._newest = Hosts()
            self._let_go()
        self._used[hosts] = self._used.get(hosts, 0) + 1
        try:
            yield hosts
        finally:
            self._used[hosts] -= 1
            self._let_go()

    def close(self) -> None:
        """End every thread."""
        for hosts in [*self._used, *self._leaving]:
            hosts.stop()
        for timer in self._leaving.values():
            timer.cancel()
        self._used.clear()
        self._leaving.clear()
        self._newest = None

    def _let_go(self) -> None:
        loop = asyncio.get_running_loop()
        for hosts in [h for h, count in self._used.items() if not count and h is not self._newest]:
            del self._used[hosts]
            self._leaving[hosts] = loop.call_later(self._grace, self._stop, hosts)

    def _stop(self, hosts: Hosts) -> None:
        del self._leaving[hosts]
        hosts.stop()
