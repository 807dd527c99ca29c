"""Where every token went. Each generated token is in exactly one account."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields
from typing import Any

from hexad.contract.episode import Actor, Episode
from hexad.contract.faults import ContractViolation

RUN_ENDED = "run_ended"
"""The reason of tokens whose episode nobody needed any more."""


@dataclass(slots=True)
class Books:
    """Tokens by account, cumulative.

    ``generated`` were sampled by the policy, lost attempts included; ``supplied`` are an expert's
    action tokens. They are equal to the sum of: ``trained`` (in a batch that became steps),
    ``dropped`` by reason, ``auxiliary`` by purpose (never trained on), ``lost`` (attempts that
    faulted and were tried again), and what is still ``pending``, by episode in order of arrival.
    """

    generated: int = 0
    supplied: int = 0
    trained: int = 0
    lost: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    auxiliary: Counter[str] = field(default_factory=Counter)
    pending: dict[str, int] = field(default_factory=dict)

    def receive(self, episode: Episode, purpose: str) -> None:
        """Book a finished episode; it stays pending until it is trained on or dropped."""
        sampled = episode.actor is Actor.POLICY
        tokens = episode.costs.sampled_tokens if sampled else episode.action_count
        if sampled:
            self.generated += tokens + episode.costs.lost_tokens
        else:
            self.supplied += tokens
            self.generated += episode.costs.lost_tokens
        self.lost += episode.costs.lost_tokens
        if purpose != "train":
            self.auxiliary[purpose] += tokens
        elif episode.episode_id in self.pending:
            raise ContractViolation(f"episode {episode.episode_id} was booked twice")
        else:
            self.pending[episode.episode_id] = tokens

    def lose(self, tokens: int) -> None:
        """Book tokens of an episode that will never be finished."""
        self.generated += tokens
        self.lost += tokens

    def leave(self, tokens: int) -> None:
        """Book tokens of an episode that was under way when the run ended."""
        self.generated += tokens
        self.dropped[RUN_ENDED] += tokens

    def drop(self, episode_id: str, reason: str) -> None:
        """Move a pending episode's tokens to the account of ``reason``."""
        if episode_id not in self.pending:
            raise ContractViolation(f"episode {episode_id} was refused but never booked")
        self.dropped[reason] += self.pending.pop(episode_id)

    def train(self, episodes: tuple[str, ...], tokens: int) -> None:
        """Move the pending tokens of ``episodes``, which must be ``tokens`` in all."""
        if unknown := [name for name in episodes if name not in self.pending]:
            raise ContractViolation(f"trained on episodes that are not pending: {unknown[:3]}")
        found = sum(self.pending.pop(name) for name in episodes)
        if found != tokens:
            raise ContractViolation(
                f"a batch of {len(episodes)} episodes and {tokens} action tokens was trained, but "
                f"the books hold {found} pending tokens of them"
            )
        self.trained += tokens

    def balance(self) -> None:
        """Raise ``ContractViolation`` unless every token is in exactly one account."""
        ins = self.generated + self.supplied
        outs = self.trained + self.lost + sum(self.pending.values())
        outs += self.dropped.total() + self.auxiliary.total()
        if ins != outs:
            raise ContractViolation(f"the books do not balance: {ins} tokens in, {outs} out")

    def row(self) -> dict[str, Any]:
        """The accounts as JSON; pending as one number."""
        return plain(self) | {"pending": sum(self.pending.values())}

    def state(self) -> dict[str, Any]:
        """Everything, as JSON values."""
        return plain(self)

    @classmethod
    def restored(cls, state: dict[str, Any]) -> Books:
        """The books that ``state`` was taken of."""
        counters = {key: Counter(state[key]) for key in ("dropped", "auxiliary")}
        return cls(**{**state, **counters, "pending": dict(state["pending"])})


def plain(record: Any) -> dict[str, Any]:
    """The fields of a dataclass of numbers and counters as JSON values."""
    # dataclasses.asdict would count the pairs of a Counter instead of copying it.
    values = {f.name: getattr(record, f.name) for f in fields(record)}
    return {k: dict(v) if isinstance(v, dict) else v for k, v in values.items()}
