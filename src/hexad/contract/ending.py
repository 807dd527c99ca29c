"""Why an episode stopped. The environment's rule decides, never the shape of a row."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class EndingKind(StrEnum):
    """The typed causes. Success is not one of them: that is the verdict's business."""

    TERMINAL = "terminal"
    """The environment reached an end state."""
    POLICY_STOP = "policy_stop"
    """The policy ended the episode by itself where the environment allows it."""
    INVALID_ACTION = "invalid_action"
    """The environment ends episodes on an illegal action."""
    BUDGET_TERMINAL = "budget_terminal"
    """A budget that is part of the task, and told to the agent, ran out."""
    TRUNCATED_TOKENS = "truncated_tokens"
    """The trainer's token limit cut the episode."""
    TRUNCATED_TURNS = "truncated_turns"
    """The trainer's turn limit cut the episode."""
    TRUNCATED_TIME = "truncated_time"
    """The trainer's wall-clock limit cut the episode."""
    USER_CANCEL = "user_cancel"
    """A person stopped it: censored, no reward."""
    ENVIRONMENT_ERROR = "environment_error"
    """The environment failed: a fault."""
    INFRASTRUCTURE_ERROR = "infrastructure_error"
    """Engine, worker or disk failed: a fault."""
    PAUSED = "paused"
    """Not an ending: a partial rollout that will be continued."""


FAULTED = frozenset({EndingKind.ENVIRONMENT_ERROR, EndingKind.INFRASTRUCTURE_ERROR})
CENSORED = frozenset({EndingKind.USER_CANCEL, EndingKind.PAUSED})
_TRUNCATED = frozenset(
    {EndingKind.TRUNCATED_TOKENS, EndingKind.TRUNCATED_TURNS, EndingKind.TRUNCATED_TIME}
)
_TERMINATED = frozenset(
    {
        EndingKind.TERMINAL,
        EndingKind.POLICY_STOP,
        EndingKind.INVALID_ACTION,
        EndingKind.BUDGET_TERMINAL,
    }
)


@dataclass(frozen=True, slots=True)
class Ending:
    """A cause with the two flags the environment's rule sets: never both.

    ``terminated``: no value after the end (no bootstrap). ``truncated``: the task would have gone
    on, so a value estimate bootstraps from the true final observation. Faults, cancellations and
    pauses set neither. The constructor stores what it is given; ``admit`` judges it.
    """

    kind: EndingKind
    terminated: bool
    truncated: bool
    reason: str = ""

    @classmethod
    def of(cls, kind: EndingKind, reason: str = "") -> Ending:
        """The ending with the usual flags of ``kind``."""
        return cls(kind, kind in _TERMINATED, kind in _TRUNCATED, reason)

    @property
    def faulted(self) -> bool:
        """Whether the cause lies outside the policy and the task."""
        return self.kind in FAULTED
