"""May this be trained on? Admission judges and never repairs.

>>> violations = admit(episode, Needs(max_lag=0, learner_version=3))
>>> [violation.reason for violation in violations]
"""

from __future__ import annotations

from collections.abc import Sequence

from hexad.contract.admit_group import group_rules
from hexad.contract.admit_record import record_rules
from hexad.contract.admit_tokens import prefix_rules, segment_rules, version_rules
from hexad.contract.episode import Episode
from hexad.contract.needs import Needs
from hexad.contract.reasons import Reason, Violation

__all__ = ["Needs", "Reason", "Violation", "admit", "admit_group"]


def admit(episode: Episode, needs: Needs) -> list[Violation]:
    """Every rule that ``episode`` breaks on its own; empty when it may be trained on.

    Tokens are judged segment by segment; a segment whose arrays differ in length is judged no
    further. Nothing is changed, filled in or dropped.
    """
    found = list(record_rules(episode, needs))
    for index, segment in enumerate(episode.segments):
        found += segment_rules(index, segment, episode.actor, needs)
    found += version_rules(episode, needs)
    found += prefix_rules(episode)
    return found


def admit_group(episodes: Sequence[Episode], needs: Needs) -> list[Violation]:
    """Every rule that the episodes of one batch break together (identity, groups, provenance)."""
    return list(group_rules(episodes, needs))
