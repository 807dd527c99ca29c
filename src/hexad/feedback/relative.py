"""Rewards that compare an episode with its group: there is none before the group is whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hexad.contract.episode import Episode
from hexad.contract.reward import Reward
from hexad.feedback.prices import QUANTITIES, amount

LENGTH = "length"
"""The component."""


def with_length(episodes: Sequence[Episode], counted: str) -> tuple[Episode, ...]:
    """``episodes``, the scored ones with a component ``length`` more, at their end.

    ``lambda = 1/2 - (l - shortest) / (longest - shortest)`` over the scored members of a group; a
    correct one gets it, another ``min(0, lambda)``; all get 0 where all are equally long. Source:
    Kimi k1.5, arXiv 2501.12599 (contract.md 2.18).
    """
    spent = {e.episode_id: amount(QUANTITIES[counted](e)) for e in episodes if e.scored}
    groups: dict[str, list[float]] = {}
    for episode in episodes:
        if episode.scored:
            groups.setdefault(episode.group_id, []).append(spent[episode.episode_id])
    return tuple(
        _added(episode, _length(episode, spent[episode.episode_id], groups[episode.group_id]))
        if episode.scored
        else episode
        for episode in episodes
    )


def _length(episode: Episode, mine: float, all_: Sequence[float]) -> float:
    shortest, longest = min(all_), max(all_)
    if shortest == longest:
        return 0.0
    found = 0.5 - (mine - shortest) / (longest - shortest)
    correct = episode.verdict is not None and episode.verdict.success
    return found if correct else min(0.0, found)


def _added(episode: Episode, value: float) -> Episode:
    return replace(episode, rewards=(*episode.rewards, Reward(LENGTH, value)))
