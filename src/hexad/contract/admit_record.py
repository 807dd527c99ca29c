"""Admission rules on an episode as a record: identity, ending, segments, feedback, provenance."""

from __future__ import annotations

import math
from collections.abc import Iterator

from hexad.contract.ending import Ending, EndingKind
from hexad.contract.episode import Episode
from hexad.contract.needs import Needs
from hexad.contract.reasons import Reason, Violation
from hexad.contract.reward import Owner, OwnerKind
from hexad.contract.segment import ACTION_SPANS, Segment

_CENSORED = {
    EndingKind.ENVIRONMENT_ERROR: Reason.ENVIRONMENT_FAULT,
    EndingKind.INFRASTRUCTURE_ERROR: Reason.INFRASTRUCTURE_FAULT,
    EndingKind.USER_CANCEL: Reason.USER_CANCEL,
    EndingKind.PAUSED: Reason.NOT_CLOSED,
}
"""Kinds that are no outcome of the policy; neither flag may be set."""
_FLAGS = {
    EndingKind.TERMINAL: {(True, False)},
    EndingKind.BUDGET_TERMINAL: {(True, False)},
    EndingKind.TRUNCATED_TOKENS: {(False, True)},
    EndingKind.TRUNCATED_TURNS: {(False, True)},
    EndingKind.TRUNCATED_TIME: {(False, True)},
    EndingKind.POLICY_STOP: {(True, False), (False, True)},
    EndingKind.INVALID_ACTION: {(True, False), (False, True)},
    **{kind: {(False, False)} for kind in _CENSORED},
}
"""Legal (terminated, truncated) by kind; two choices where the environment's rule decides."""


def record_rules(episode: Episode, needs: Needs) -> Iterator[Violation]:
    """Rules on everything but single tokens."""
    yield from _identity_rules(episode, needs)
    yield from _ending_rules(episode.ending)
    yield from _segment_rules(episode, needs)
    yield from _provenance_rules(episode, needs)
    yield from _feedback_rules(episode, needs)


def _identity_rules(episode: Episode, needs: Needs) -> Iterator[Violation]:
    for name in ("episode_id", "task_id", "group_id", "environment"):
        if not getattr(episode, name):
            yield Violation(Reason.SCHEMA, name, "empty")
    for name in ("member", "attempt"):
        if (value := getattr(episode, name)) < 0:
            yield Violation(Reason.SCHEMA, name, f"{value} is negative")
    if (prefix := episode.prefix) is not None:
        if not (prefix.of and prefix.group) or prefix.turns < 0:
            yield Violation(Reason.SCHEMA, "prefix", f"{prefix} names no beginning")
    if episode.split not in needs.splits:
        allowed = ", ".join(sorted(needs.splits))
        yield Violation(Reason.WRONG_SPLIT, "split", f"{episode.split} is not among: {allowed}")


def _ending_rules(ending: Ending) -> Iterator[Violation]:
    flags = (ending.terminated, ending.truncated)
    if all(flags):
        yield Violation(Reason.BOTH_ENDINGS, "ending", "terminated and truncated")
    elif flags not in _FLAGS[ending.kind]:
        detail = f"{ending.kind} with terminated={flags[0]}, truncated={flags[1]}"
        yield Violation(Reason.ENDING_FLAGS, "ending", detail)
    if reason := _CENSORED.get(ending.kind):
        yield Violation(reason, "ending", ending.reason or str(ending.kind))


def _segment_rules(episode: Episode, needs: Needs) -> Iterator[Violation]:
    if episode.action_count == 0:
        yield Violation(Reason.EMPTY_ACTION, "segments", "nobody sampled a token")
    for index, segment in enumerate(episode.segments):
        parent, at = segment.parent, f"segments[{index}]"
        if parent is not None and not 0 <= parent < index:
            detail = f"parent {parent} is not an earlier segment"
            yield Violation(Reason.UNREPLAYABLE_SEGMENT, f"{at}.parent", detail)
        elif index > 0 and (parent is None or not segment.origin):
            yield Violation(Reason.UNREPLAYABLE_SEGMENT, at, "no parent or no origin")
    if needs.final_observation and episode.ending.truncated:
        yield from _final_state(episode, needs)


def _final_state(episode: Episode, needs: Needs) -> Iterator[Violation]:
    last = episode.segments[-1] if episode.segments else None
    if last is None or not len(last) or _unanswered(last, needs):
        detail = "the last segment does not end in an observation"
        yield Violation(Reason.NO_FINAL_OBSERVATION, "segments", detail)
    elif needs.positions is not None and len(last) > needs.positions:
        detail = f"its {len(last)} tokens do not fit the {needs.positions} positions of the model"
        yield Violation(Reason.NO_FINAL_OBSERVATION, "segments", detail)


def _unanswered(last: Segment, needs: Needs) -> bool:
    """Whether the segment ends in a whole turn: what the environment said to it is missing."""
    if last.spans and last.spans[-1].kind not in ACTION_SPANS:
        return False
    return not needs.stop_ids or int(last.ids[-1]) in needs.stop_ids


def _provenance_rules(episode: Episode, needs: Needs) -> Iterator[Violation]:
    parts = episode.provenance.parts()
    versions = {f"versions[{version}]": text for version, text in episode.provenance.versions}
    digests = {f"provenance.{name}": text for name, text in (parts | versions).items()}
    for where, text in (digests | {"initial_state": episode.initial_state}).items():
        if not text.strip():
            yield Violation(Reason.MISSING_DIGEST, where, "empty digest")
        elif text.strip().lower() == "latest":
            yield Violation(Reason.UNPINNED_DIGEST, where, "'latest' is not a version")
    for part, expected in needs.expected.items():
        if parts[part] != expected:
            detail = f"{parts[part]} instead of {expected}"
            yield Violation(Reason.DIGEST_MISMATCH, f"provenance.{part}", detail)


def _feedback_rules(episode: Episode, needs: Needs) -> Iterator[Violation]:
    verdict = episode.verdict
    if needs.reward and episode.ending.kind not in _CENSORED:
        if not episode.scored:
            detail = str(verdict.status) if verdict else "no verdict"
            yield Violation(Reason.UNSCORED, "verdict", detail)
        elif not episode.rewards:
            yield Violation(Reason.UNSCORED, "rewards", "scored, but no reward component")
    # NaN fails the comparison as well, so that no number outside [0, 1] passes.
    if verdict is not None and verdict.score is not None and not 0 <= verdict.score <= 1:
        yield Violation(Reason.INVALID_SCORE, "verdict.score", f"{verdict.score}")
    for number, reward in enumerate(episode.rewards):
        at = f"rewards[{number}]"
        if not math.isfinite(reward.value):
            detail = f"{reward.component} is {reward.value}"
            yield Violation(Reason.NONFINITE_REWARD, f"{at}.value", detail)
        if not _owner_exists(reward.owner, episode):
            yield Violation(Reason.REWARD_OWNER, f"{at}.owner", f"{reward.owner} does not exist")
    gate = episode.gate
    if gate is not None and not math.isfinite(gate.reward):
        yield Violation(Reason.NONFINITE_REWARD, "gate.reward", f"it is {gate.reward}")


def _owner_exists(owner: Owner, episode: Episode) -> bool:
    if owner.kind is OwnerKind.END:
        return True
    if owner.kind is OwnerKind.CALL:
        return 0 <= owner.index < len(episode.calls)
    if owner.kind is OwnerKind.SPAN:
        known = 0 <= owner.segment < len(episode.segments)
        return known and 0 <= owner.index < len(episode.segments[owner.segment].spans)
    acted = (
        span.turn
        for segment in episode.segments
        for span in segment.spans
        if span.kind in ACTION_SPANS
    )
    return owner.index in acted
