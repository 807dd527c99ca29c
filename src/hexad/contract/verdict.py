"""What a verifier said of an episode. A verdict is not a reward: a versioned mapping makes that."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum


class VerdictStatus(StrEnum):
    """The verifier's answer; the last three mean *not scored*."""

    CORRECT = "correct"
    WRONG = "wrong"
    INVALID = "invalid"
    """The action or answer has an illegal form."""
    TIMEOUT = "timeout"
    """What the policy produced took more time or memory than declared to check: the policy's
    doing, as hanging the verifier must be no escape. The recipe may leave it unscored."""
    ENVIRONMENT_FAILURE = "environment_failure"
    INFRASTRUCTURE_ERROR = "infrastructure_error"
    VERIFIER_ERROR = "verifier_error"


UNSCORED = frozenset(
    {
        VerdictStatus.ENVIRONMENT_FAILURE,
        VerdictStatus.INFRASTRUCTURE_ERROR,
        VerdictStatus.VERIFIER_ERROR,
    }
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """``score`` in [0, 1] or ``None`` where nothing was scored; ``evidence`` is JSON text."""

    status: VerdictStatus
    score: float | None
    evidence: str = "{}"

    @property
    def scored(self) -> bool:
        """Whether the policy's behaviour was judged at all."""
        return self.status not in UNSCORED and self.score is not None

    @property
    def unscored(self) -> str | None:
        """Why a verifier left this unscored, in a word, where its evidence says so."""
        if self.scored:
            return None
        try:
            evidence = json.loads(self.evidence)
        except ValueError:  # a user's verifier may store any text
            return None
        why = evidence.get("unscored") if isinstance(evidence, dict) else None
        return why if isinstance(why, str) else None

    @property
    def success(self) -> bool:
        """Whether the task was solved."""
        return self.status is VerdictStatus.CORRECT
