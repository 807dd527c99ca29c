"""The explicit clock: when time passes, and where the value of a state is read.

Time passes with the policy's own decisions and with nothing else, so observations cannot tick, leak
or matter. Every estimator runs on the compact axis of ``M`` clock steps; ``value`` stays on the
axis of ``T`` tokens, where ``value[t]`` is V of the prefix that *ends with* token ``t``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from hexad.credit.rewards import Actions, Rewards, paid

Kind = Literal["token", "span", "turn", "segment"]

TERMINAL = -1
"""``successor`` behind a termination: no state follows, its value is 0."""
MISSING = -2
"""``successor`` behind a truncation whose final state was not stored: its value is unknown."""


@dataclass(frozen=True, slots=True, eq=False)
class Tokens:
    """What the clock needs of a flat batch: ``T`` tokens, ``R`` rows, ``E`` episodes.

    action       bool  [T]      sampled by the actor
    turn         int64 [T]      assistant turn number inside the episode
    offsets      int64 [R + 1]  row r holds the tokens offsets[r] to offsets[r + 1]; none is empty
    row_episode  int64 [R]      rows of one episode are adjacent and in the order of their segments
    terminated   bool  [E]
    truncated    bool  [E]      never both
    span         int64 [T]      number of the span inside its row; only the span clock reads it
    final        bool  [E]      the state that a truncated episode stopped in is stored: its last
                                token is the end of the final observation. None: it is stored if the
                                last token is no action. A turn that was cut in the middle is
                                followed by no observation: there the caller may say True.
    """

    action: Tensor
    turn: Tensor
    offsets: Tensor
    row_episode: Tensor
    terminated: Tensor
    truncated: Tensor
    span: Tensor | None = None
    final: Tensor | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Clock:
    """``M`` clock steps in batch order, of the episodes that are used.

    episode     int64   [M]  whose step it is; episodes are contiguous
    decision    int64   [M]  token where V(s) is read: the one before the step's first token
    successor   int64   [M]  token where V(s') is read: the next step's decision, also across a
                             seam; the last stored token if truncated; or TERMINAL or MISSING
    last        bool    [M]  the episode ends here: the carry stops
    reward      float64 [M]  sum of the rewards that the step owns
    step        int64   [T]  token -> its step; -1 off the actions that are counted
    terminated  bool    [E]
    truncated   bool    [E]
    missing     bool    [E]  used, truncated, and without a stored final state: an estimator that
                             bootstraps refuses it
    """

    kind: Kind
    episode: Tensor
    decision: Tensor
    successor: Tensor
    last: Tensor
    reward: Tensor
    step: Tensor
    terminated: Tensor
    truncated: Tensor
    missing: Tensor

    @property
    def first(self) -> Tensor:
        """int64 [M]: the first token of every step, where a value target stands."""
        return self.decision + 1

    @property
    def lengths(self) -> Tensor:
        """int64 [E]: steps of each episode; 0 where it is not used."""
        return torch.bincount(self.episode, minlength=len(self.terminated))

    def spread(self, values: Tensor) -> Tensor:
        """Step values [M] -> token values [T]: every action token gets its step's, others 0."""
        counted = self.step >= 0
        spread = values.new_zeros(len(self.step))
        spread[counted] = values[self.step[counted]]
        return spread

    def sum(self, values: Tensor) -> Tensor:
        """Token values [T] -> step sums [M], float64, over counted actions: log-ratios, KL."""
        counted = self.step >= 0
        total = torch.zeros(len(self.episode), dtype=torch.float64)
        return total.index_add(0, self.step[counted], values[counted].to(torch.float64))

    def scores(self) -> Tensor:
        """float64 [E]: the undiscounted sum of every episode's rewards; 0 where it is not used."""
        total = torch.zeros(len(self.terminated), dtype=torch.float64)
        return total.index_add(0, self.episode, self.reward)

    def rewarded(self, reward: Tensor) -> Clock:
        """The same clock with another ``reward`` float64 [M]: shaping, or KL in the reward."""
        if reward.shape != self.reward.shape or reward.dtype != torch.float64:
            raise ValueError(f"reward must be float64 {tuple(self.reward.shape)}")
        return replace(self, reward=reward)

    def keep(self, episodes: Tensor) -> Clock:
        """The clock of some of the episodes (bool [E]); episode numbers stay."""
        kept = episodes[self.episode]
        place = torch.where(kept, torch.cumsum(kept, 0) - 1, -1)
        step = torch.full_like(self.step, -1)
        counted = self.step >= 0
        step[counted] = place[self.step[counted]]
        axis = {n: getattr(self, n)[kept] for n in _AXIS}
        return replace(self, **axis, step=step, missing=self.missing & episodes)


_AXIS = ("episode", "decision", "successor", "last", "reward")


def clock(tokens: Tokens, rewards: Rewards, *, kind: Kind, used: Tensor | None = None) -> Clock:
    """Count the steps of the ``used`` (bool [E]; all by default) episodes of a batch.

    A step is one action token (``token``), or the action tokens of one ``span``, one assistant
    ``turn`` or one ``segment``; never of two rows. An episode that is faulted or not scored should
    not be used: then it has no step, and its rewards are not read.

    Raises ``ValueError`` on other shapes or types, on a used episode that is neither terminated nor
    truncated, or both, or that has no action, on an action at the very start of a row (no state
    precedes it), and on a reward without an owner.
    """
    _check(tokens, kind)
    everything = torch.ones_like(tokens.terminated)
    used = everything if used is None else used
    if used.dtype != torch.bool or used.shape != everything.shape:
        raise ValueError("used must be bool [E]")
    lengths = tokens.offsets.diff()
    token_row = torch.repeat_interleave(torch.arange(len(lengths)), lengths)
    token_episode = tokens.row_episode[token_row]
    acts = (tokens.action & used[token_episode]).nonzero().squeeze(1)
    row = token_row[acts]
    begins = _begins(tokens, kind, acts, row)
    step_of = torch.cumsum(begins, 0) - 1
    first = acts[begins]
    if (first == tokens.offsets[row[begins]]).any():
        raise ValueError("a row begins with an action: no state before it has a value")
    episode = token_episode[first]
    _check_endings(tokens, used, episode)
    actions = Actions(acts, tokens.turn[acts], token_episode[acts], step_of)
    reward = paid(rewards, actions, token_episode, used)
    step = torch.full_like(tokens.turn, -1)
    step[acts] = step_of
    last = torch.ones_like(episode, dtype=torch.bool)
    last[:-1] = episode[1:] != episode[:-1]
    behind, missing = _ends(tokens, used)
    successor = torch.where(last, behind[episode], (first - 1).roll(-1))
    ends = (tokens.terminated, tokens.truncated, missing)
    return Clock(kind, episode, first - 1, successor, last, reward, step, *ends)


def _begins(tokens: Tokens, kind: Kind, acts: Tensor, row: Tensor) -> Tensor:
    """bool [A]: whether an action is the first of its step."""
    if kind == "token":
        return torch.ones_like(acts, dtype=torch.bool)
    key = {"turn": tokens.turn, "span": tokens.span, "segment": None}[kind]
    begins = torch.ones_like(acts, dtype=torch.bool)
    begins[1:] = row[1:] != row[:-1]
    if key is not None:
        begins[1:] |= key[acts[1:]] != key[acts[:-1]]
    return begins


def _ends(tokens: Tokens, used: Tensor) -> tuple[Tensor, Tensor]:
    """The ``successor`` of each episode's last step, and which episodes miss one: both [E]."""
    ends = torch.full((len(used),), MISSING, dtype=torch.int64)
    ends = ends.scatter_reduce(0, tokens.row_episode, tokens.offsets[1:] - 1, "amax")
    final = tokens.final
    if final is None:
        final = ~tokens.action[ends.clamp_min(0)]
    missing = used & tokens.truncated & ~final
    ends = torch.where(missing, MISSING, ends)
    return torch.where(tokens.terminated, TERMINAL, ends), missing


def _check(tokens: Tokens, kind: Kind) -> None:
    count, rows, episodes = len(tokens.action), len(tokens.row_episode), len(tokens.terminated)
    optional = [(tokens.span, torch.int64, count), (tokens.final, torch.bool, episodes)]
    wanted = [
        (tokens.action, torch.bool, count),
        (tokens.turn, torch.int64, count),
        (tokens.offsets, torch.int64, rows + 1),
        (tokens.row_episode, torch.int64, rows),
        (tokens.terminated, torch.bool, episodes),
        (tokens.truncated, torch.bool, episodes),
        *((field, dtype, size) for field, dtype, size in optional if field is not None),
    ]
    for field, dtype, size in wanted:
        if field.shape != (size,) or field.dtype != dtype:
            raise ValueError(f"{tuple(field.shape)} {field.dtype} should be ({size},) {dtype}")
    if kind == "span" and tokens.span is None:
        raise ValueError("the span clock needs the span of every token")
    if kind not in ("token", "span", "turn", "segment"):
        raise ValueError(f"unknown clock {kind!r}")
    offsets, owner = tokens.offsets, tokens.row_episode
    if int(offsets[0]) != 0 or int(offsets[-1]) != count or (offsets.diff() <= 0).any():
        raise ValueError("offsets must increase from 0 to the number of tokens; no row is empty")
    if rows and not (0 <= int(owner.min()) and int(owner.max()) < episodes):
        raise ValueError("a row names an episode that is not in the batch")
    if len(torch.unique_consecutive(owner)) != len(torch.unique(owner)):
        raise ValueError("the rows of an episode must be adjacent")


def _check_endings(tokens: Tokens, used: Tensor, episode: Tensor) -> None:
    """Every used episode ends in exactly one way, and acts. ``episode`` int64 [M]."""
    both = tokens.terminated & tokens.truncated
    if both.any():
        raise ValueError(f"episodes {both.nonzero().squeeze(1).tolist()} are ended twice")
    neither = used & ~tokens.terminated & ~tokens.truncated
    if neither.any():
        raise ValueError(
            f"episodes {neither.nonzero().squeeze(1).tolist()} are neither terminated nor truncated"
        )
    idle = used & (torch.bincount(episode, minlength=len(used)) == 0)
    if idle.any():
        raise ValueError(f"episodes {idle.nonzero().squeeze(1).tolist()} have no action")
