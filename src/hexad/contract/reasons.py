"""Why an episode may not be trained on: stable codes for admission and the ledger."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Reason(StrEnum):
    """Codes are stable: they are written to ``ledger.jsonl`` and counted there."""

    # the record
    SCHEMA = "schema"
    """An identity is empty, or a number is outside its type's meaning (negative id, member...)."""
    LENGTH_MISMATCH = "length_mismatch"
    """The arrays of a segment differ in length."""
    SPAN_TABLE = "span_table"
    """Spans overlap, leave a gap, are empty or leave the segment."""
    MASK_MISMATCH = "mask_mismatch"
    """The action mask disagrees with the span kinds."""
    EMPTY_ACTION = "empty_action"
    """No token was sampled by the actor."""
    UNREPLAYABLE_SEGMENT = "unreplayable_segment"
    """A later segment does not say from which earlier one it was made, and how."""
    # tokens
    MISSING_LOGPROB = "missing_logprob"
    """NaN on an action token, where the method needs behaviour log-probs."""
    NONFINITE_LOGPROB = "nonfinite_logprob"
    """Infinite on an action token."""
    POSITIVE_LOGPROB = "positive_logprob"
    """Above 0 on an action token: not the log of a probability."""
    LOGPROB_OFF_ACTION = "logprob_off_action"
    """A log-prob where the policy did not sample: on an observation, or on expert data."""
    VERSION_OFF_ACTION = "version_off_action"
    """A version where the policy did not sample."""
    WEIGHT_OFF_ACTION = "weight_off_action"
    """A non-zero loss weight off the action tokens."""
    INVALID_WEIGHT = "invalid_weight"
    """A negative or non-finite loss weight."""
    WEIGHT_ON_PREFIX = "weight_on_prefix"
    """A non-zero loss weight on a token that another episode sampled."""
    MISSING_SUPPORT = "missing_support"
    """A sampled token does not name its set, though its sampling cuts the vocabulary."""
    STRAY_SUPPORT = "stray_support"
    """A set where the policy did not sample, or though its sampling cuts nothing."""
    INVALID_SUPPORT = "invalid_support"
    """A set names an id twice, out of order, or a negative one."""
    OUTSIDE_SUPPORT = "outside_support"
    """A sampled token is not in its own set."""
    FORCED_LOGPROB = "forced_logprob"
    """A token whose set holds it alone has another log-prob than 0."""
    # versions
    MISSING_VERSION = "missing_version"
    """An action token without a policy version, where the method needs one."""
    DECREASING_VERSION = "decreasing_version"
    """A version falls along a segment."""
    UNRECORDED_VERSION = "unrecorded_version"
    """A token's version is missing from the provenance."""
    UNSAMPLED_VERSION = "unsampled_version"
    """The provenance names a version that sampled no token."""
    STALE_VERSION = "stale_version"
    """The learner is further ahead of the oldest version behind a trained token than allowed."""
    FUTURE_VERSION = "future_version"
    """A token claims a version that the learner has not reached."""
    ORPHAN_VERSION = "orphan_version"
    """A token was sampled by weights that are not in the learner's lineage."""
    # the end
    BOTH_ENDINGS = "both_endings"
    """Terminated and truncated at once."""
    ENDING_FLAGS = "ending_flags"
    """The flags contradict the kind of the ending."""
    NOT_CLOSED = "not_closed"
    """The episode is paused: it has no end yet."""
    NO_FINAL_OBSERVATION = "no_final_observation"
    """Truncated, needs a bootstrap, and the final observation is not stored."""
    ENVIRONMENT_FAULT = "environment_fault"
    """The environment failed."""
    INFRASTRUCTURE_FAULT = "infrastructure_fault"
    """Engine, worker or disk failed."""
    USER_CANCEL = "user_cancel"
    """A person stopped it: censored."""
    # feedback
    UNSCORED = "unscored"
    """No verdict, or one that means *not scored*, or no reward component."""
    INVALID_SCORE = "invalid_score"
    """The verdict's score is not a number in [0, 1]."""
    NONFINITE_REWARD = "nonfinite_reward"
    """A reward component is NaN or infinite."""
    REWARD_OWNER = "reward_owner"
    """A reward belongs to a turn or span that does not exist."""
    # provenance
    MISSING_DIGEST = "missing_digest"
    """A digest is empty."""
    UNPINNED_DIGEST = "unpinned_digest"
    """A digest is the word ``latest``."""
    DIGEST_MISMATCH = "digest_mismatch"
    """A part differs from the one that the learner works with."""
    WRONG_SPLIT = "wrong_split"
    """The task belongs to a split that may not be trained on."""
    # across episodes
    UNEQUAL_INITIAL_STATE = "unequal_initial_state"
    """Members of a group began in different states."""
    MIXED_TASKS = "mixed_tasks"
    """Members of a group tried different tasks."""
    MIXED_PROVENANCE = "mixed_provenance"
    """Parts that must agree in a batch or in an environment do not."""
    DUPLICATE_EPISODE = "duplicate_episode"
    """An episode id occurs twice."""
    DUPLICATE_MEMBER = "duplicate_member"
    """A place in a group is taken twice."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule. ``where`` is a path such as ``segments[0].logprob[7]``."""

    reason: Reason
    where: str
    detail: str
