"""An action that was asked for and not executed, because it may not be."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class RefusalReason(StrEnum):
    """Why a call was not executed."""

    FORBIDDEN = "forbidden"
    """The task's rules never allow it."""
    DENIED = "denied"
    """Whoever approves such calls said no."""
    UNANSWERED = "unanswered"
    """Nobody said yes in time, which counts as no. The policy could not know: no violation."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Call number ``call`` of assistant turn ``turn``; ``detail`` is what the policy was told."""

    turn: int
    call: int
    tool: str
    reason: RefusalReason
    detail: str = ""

    @property
    def violation(self) -> bool:
        """Whether the policy asked for what it may not do."""
        return self.reason is not RefusalReason.UNANSWERED
