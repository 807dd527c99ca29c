"""Threads for environments in a process that never ends: what hung once is let go."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hexad.rollout.host import Hosts


class Berths:
    """Lends the same ``Hosts`` to all episodes, and new ones once a thread of them has hung.

    The old ones end with the last episode that uses them, so that hung environments leave at most
    their own blocked threads behind.
    """

    def __init__(self) -> None:
        self._used: dict[Hosts, int] = {}
        self._newest: Hosts | None = None

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
        for hosts in self._used:
            hosts.stop()
        self._used.clear()
        self._newest = None

    def _let_go(self) -> None:
        for hosts in [h for h, count in self._used.items() if not count and h is not self._newest]:
            del self._used[hosts]
            hosts.stop()
