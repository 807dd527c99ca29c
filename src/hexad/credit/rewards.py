"""Rewards with an owner, and the action each of them is paid for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import torch
from torch import Tensor


class Owner(IntEnum):
    """What ``index`` of a reward means."""

    END = 0
    """The end of the episode; ``index`` is not read."""
    TURN = 1
    """A turn number inside the episode."""
    TOKEN = 2
    """A place on the token axis: the last token of a span, or an observation."""


@dataclass(frozen=True, slots=True, eq=False)
class Rewards:
    """``K`` rewards: ``value`` float64, ``episode``, ``owner`` and ``index`` int64, all [K]."""

    value: Tensor
    episode: Tensor
    owner: Tensor
    index: Tensor

    def __add__(self, other: Rewards) -> Rewards:
        """Both lists, one behind the other."""
        names = ("value", "episode", "owner", "index")
        return Rewards(*(torch.cat((getattr(self, n), getattr(other, n))) for n in names))

    def __post_init__(self) -> None:
        """Raise ``ValueError`` on unequal shapes or wrong types."""
        rest = (self.episode, self.owner, self.index)
        if self.value.ndim != 1 or any(v.shape != self.value.shape for v in rest):
            raise ValueError("value, episode, owner and index must be [K]")
        if self.value.dtype != torch.float64 or any(v.dtype != torch.int64 for v in rest):
            raise ValueError("expected float64 values, and int64 episodes, owners and indices")


@dataclass(frozen=True, slots=True)
class Actions:
    """The ``A`` actions that the clock counts, in order: all int64 [A].

    ``token`` their place on the token axis, increasing; ``turn``, ``episode`` (episodes are
    contiguous) and the clock ``step`` each belongs to.
    """

    token: Tensor
    turn: Tensor
    episode: Tensor
    step: Tensor


def paid(rewards: Rewards, actions: Actions, token_episode: Tensor, used: Tensor) -> Tensor:
    """float64 [M]: the sum of the rewards that each clock step owns.

    An ``END`` is owned by the episode's last action, a ``TURN`` by the turn's last action, and a
    ``TOKEN`` by the last action at or before it in the episode - so a reward that was given on an
    observation belongs to the action that caused it. ``token_episode`` int64 [T]. Rewards of
    episodes that are not ``used`` (bool [E]) are left out. Raises ``ValueError`` for a reward that
    is not finite or that no action owns: no reward is ever lost.
    """
    if rewards.episode.numel() and not _within(rewards.episode, len(used)):
        raise ValueError("a reward names an episode that is not in the batch")
    kept = used[rewards.episode]
    value, episode, owner, index = (
        v[kept] for v in (rewards.value, rewards.episode, rewards.owner, rewards.index)
    )
    if not torch.isfinite(value).all():
        raise ValueError("a reward of a used episode is not finite")
    steps = int(actions.step[-1]) + 1 if len(actions.step) else 0
    found = torch.full_like(episode, -1)
    for kind, rule in ((Owner.END, _ends), (Owner.TURN, _turns)):
        here = owner == kind
        found[here] = rule(actions, episode[here], index[here])
    here = owner == Owner.TOKEN
    found[here] = _tokens(actions, episode[here], index[here], token_episode)
    if (found < 0).any():
        at = int((found < 0).nonzero()[0])
        raise ValueError(
            f"no action owns the reward of episode {int(episode[at])} with owner "
            f"{int(owner[at])}, index {int(index[at])}"
        )
    total = torch.zeros(steps, dtype=torch.float64)
    return total.index_add(0, actions.step[found], value)


def _ends(actions: Actions, episode: Tensor, index: Tensor) -> Tensor:
    """Place among the actions of each episode's last one; -1 where it has none."""
    return _last_of(actions.episode, episode)


def _turns(actions: Actions, episode: Tensor, index: Tensor) -> Tensor:
    """Place of the last action of a turn of an episode; -1 where it has none."""
    both = torch.cat((actions.turn, index))
    if not both.numel():
        return index
    low = both.min()
    width = both.max() - low + 1
    return _last_of(actions.episode * width + actions.turn - low, episode * width + index - low)


def _tokens(actions: Actions, episode: Tensor, index: Tensor, token_episode: Tensor) -> Tensor:
    """Place of the last action at or before a token of the same episode; -1 where there is none."""
    if not index.numel():
        return index
    if not _within(index, len(token_episode)) or (token_episode[index] != episode).any():
        raise ValueError("a reward names a token outside its episode")
    place = torch.searchsorted(actions.token, index, right=True) - 1
    owned = place >= 0
    owned[owned.clone()] = actions.episode[place[owned]] == episode[owned]
    return torch.where(owned, place, -1)


def _last_of(keys: Tensor, wanted: Tensor) -> Tensor:
    """Last place in ``keys`` of each ``wanted`` key; -1 where it does not occur."""
    order = torch.argsort(keys, stable=True)
    ranked = keys[order]
    place = torch.searchsorted(ranked, wanted, right=True) - 1
    present = place >= 0
    present[present.clone()] = ranked[place[present]] == wanted[present]
    return torch.where(present, order[place.clamp_min(0)] if len(order) else place, -1)


def _within(index: Tensor, size: int) -> bool:
    return bool(((index >= 0) & (index < size)).all())
