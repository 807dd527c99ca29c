"""Since when: a probe of the newest episodes is tried on earlier ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hexad.contract.episode import Episode
from hexad.contract.store import Store

LEAST = 64
"""Episodes that a probe is tried on, where the run stored as many from there on."""


def began(store: Store, newest: int, holds: Callable[[Sequence[Episode]], bool]) -> int:
    """The first stored step at which ``holds`` says yes, by bisection up to ``newest``.

    What began is taken to stay; at ``newest`` it is known to hold.
    """
    steps = [s for part in store.parts() for s in range(part.first, part.last + 1) if s < newest]
    low, high = 0, len(steps)
    while low < high:
        middle = (low + high) // 2
        if holds(_from(store, steps[middle:])):
            high = middle
        else:
            low = middle + 1
    return steps[low] if low < len(steps) else newest


def _from(store: Store, steps: Sequence[int]) -> list[Episode]:
    found: list[Episode] = []
    for step in steps:
        found += store.read([step])
        if len(found) >= LEAST:
            break
    return found
