"""What an episode consumed, each piece with its owner, and what that costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from hexad.contract.episode import Episode
from hexad.contract.reward import Owner, OwnerKind, Reward
from hexad.contract.segment import ACTION_SPANS

COST = "cost"
"""The component that prices are charged as."""


@dataclass(frozen=True, slots=True)
class Prices:
    """Price of a turn, of a call by tool, and of a call of any other tool."""

    turn: float = 0.0
    call: float = 0.0
    tools: Mapping[str, float] = field(default_factory=dict)

    def charges(self, episode: Episode) -> tuple[Reward, ...]:
        """What ``episode`` cost, positive, owned by the turn or call that caused it."""
        found = [*_scaled(turns(episode), self.turn)] if self.turn else []
        for number, (row, place) in enumerate(episode.calls):
            name = episode.segments[row].spans[place].name
            price = self.tools.get(name, self.call)
            if price:
                found.append(Reward(COST, price, Owner(OwnerKind.CALL, number)))
        return tuple(found)


def turns(episode: Episode) -> tuple[Reward, ...]:
    """1 for every assistant turn."""
    return tuple(
        Reward("turns", 1.0, Owner(OwnerKind.TURN, turn)) for turn in sorted(_tokens(episode))
    )


def calls(episode: Episode) -> tuple[Reward, ...]:
    """1 for every tool call that was written, executed or not."""
    count = len(episode.calls)
    return tuple(Reward("calls", 1.0, Owner(OwnerKind.CALL, number)) for number in range(count))


def sampled_tokens(episode: Episode) -> tuple[Reward, ...]:
    """The sampled tokens of every turn."""
    counted = sorted(_tokens(episode).items())
    return tuple(
        Reward("sampled_tokens", float(tokens), Owner(OwnerKind.TURN, turn))
        for turn, tokens in counted
    )


def violations(episode: Episode) -> tuple[Reward, ...]:
    """1 for every call that the policy may not make and asked for, owned by its turn."""
    return tuple(
        Reward("violations", 1.0, Owner(OwnerKind.TURN, refusal.turn))
        for refusal in episode.refusals
        if refusal.violation
    )


def _tokens(episode: Episode) -> dict[int, int]:
    """Sampled tokens by turn."""
    found: dict[int, int] = {}
    for segment in episode.segments:
        for span in segment.spans:
            if span.kind in ACTION_SPANS:
                found[span.turn] = found.get(span.turn, 0) + span.end - span.start
    return found


def _scaled(rewards: tuple[Reward, ...], price: float) -> tuple[Reward, ...]:
    return tuple(Reward(COST, price * reward.value, reward.owner) for reward in rewards)


QUANTITIES: dict[str, Callable[[Episode], tuple[Reward, ...]]] = {
    "turns": turns,
    "calls": calls,
    "sampled_tokens": sampled_tokens,
    "violations": violations,
}
"""What can be counted: name -> pieces with their owners; their sum is the episode's amount."""


def amount(pieces: tuple[Reward, ...]) -> float:
    """The sum of the values."""
    return sum(piece.value for piece in pieces)
