"""Episodes under way: their orders, and what is on record of them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

from hexad.rollout.log import EpisodeLog
from hexad.schedule.messages import Play
from hexad.schedule.wal import Wal


@dataclass(slots=True)
class Flight:
    """An episode under way: its order, its log where it goes on, and tokens that are gone."""

    order: Play
    log: bytes = b""
    lost: int = 0
    sent: bool = False


def recorded(flight: Flight, wal: Wal) -> bytes:
    """What is recorded of an episode: by its worker, or only what that was handed to begin."""
    if not flight.sent:
        return flight.log
    return max(wal.read(flight.order.episode_id), flight.log, key=len)


def lineage_of(flight: Flight, lineage: Callable[[int], str]) -> dict[int, str]:
    """Digests of the versions in a log. One that no longer exists makes the log worthless.

    Then the flight gives it up: its tokens are lost.
    """
    if not flight.log:
        return {}
    log = EpisodeLog.read(flight.log)
    try:
        return {version: lineage(version) for version in log.versions}
    except KeyError:
        flight.lost += log.sampled_tokens
        flight.log = b""
        return {}


def kept(state: Mapping[str, Any]) -> dict[str, int]:
    """Tokens by episode that a resume from the source's ``state`` need not sample again.

    Of finished episodes these are all, however many.
    """
    flying = {name: EpisodeLog.read(log).sampled_tokens for name, log in logs_of(state).items()}
    return flying | dict.fromkeys(state["settled"], sys.maxsize)


def logs_of(state: Mapping[str, Any]) -> dict[str, bytes]:
    """The logs of the episodes under way in the source's ``state``, by name, in order."""
    edges = [0, *accumulate(state["log_lengths"])]
    names = [order["episode_id"] for order, _ in state["flights"]]
    spans = zip(names, pairwise(edges), strict=True)
    return {name: bytes(state["logs"][start:end]) for name, (start, end) in spans}
