"""Admission rules on tokens: lengths, spans, masks, log-probs, weights, versions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

import numpy as np

from hexad.contract.arrays import Bools
from hexad.contract.episode import Actor, Episode
from hexad.contract.lag import oldest_version
from hexad.contract.needs import Needs
from hexad.contract.reasons import Reason, Violation
from hexad.contract.segment import ACTION_SPANS, NO_VERSION, Segment

_ARRAYS = ("action", "weight", "logprob", "version", "turn")


def segment_rules(index: int, segment: Segment, actor: Actor, needs: Needs) -> Iterator[Violation]:
    """Rules on one segment. ``index`` is its place in the episode."""
    at = f"segments[{index}]"
    lengths = {name: len(getattr(segment, name)) for name in ("ids", *_ARRAYS)}
    if segment.support is not None:
        lengths["support"] = len(segment.support)
    if len(set(lengths.values())) > 1:
        yield Violation(Reason.LENGTH_MISMATCH, at, f"lengths {lengths}")
        return
    yield from _each(Reason.SCHEMA, f"{at}.ids", segment.ids < 0, "negative token id")
    yield from _span_rules(at, segment)
    yield from _weight_rules(at, segment)
    if actor is Actor.POLICY:
        sampled = segment.action
    else:
        sampled = np.zeros_like(segment.action)
    yield from _presence_rules(at, segment, sampled)
    if needs.logprob:
        yield from _logprob_rules(at, segment)
    yield from _order_rules(at, segment, sampled)
    yield from _support_rules(at, segment, sampled, needs)


def version_rules(episode: Episode, needs: Needs) -> Iterator[Violation]:
    """Rules on the policy versions of all tokens of an episode, over its whole segments."""
    sampled, whole = set[int](), True
    for segment in episode.segments:
        if len(segment.version) != len(segment.action):
            whole = False
            continue
        known = segment.action & (segment.version > NO_VERSION)
        sampled |= set(segment.version[known].tolist())
    if episode.actor is not Actor.POLICY or not sampled:
        return
    recorded = episode.provenance.lineage()
    for version in sorted(sampled - recorded.keys()):
        yield Violation(
            Reason.UNRECORDED_VERSION, "provenance.versions", f"version {version} has no digest"
        )
    for version in sorted(recorded.keys() - sampled) if whole else ():
        yield Violation(
            Reason.UNSAMPLED_VERSION, "provenance.versions", f"version {version} sampled no token"
        )
    if needs.max_lag is not None:
        if max(sampled) > needs.learner_version:
            detail = f"version {max(sampled)} sampled, learner at {needs.learner_version}"
            yield Violation(Reason.FUTURE_VERSION, "segments.version", detail)
        yield from _lag_rules(episode, needs.learner_version, needs.max_lag)
    if needs.lineage is not None:
        yield from _orphan_rules(sampled, recorded, needs.lineage)


def prefix_rules(episode: Episode) -> Iterator[Violation]:
    """Every sampled token is in the loss of one episode: what is repeated has weight 0."""
    for index, segment in enumerate(episode.segments):
        if len(segment.weight) == len(segment.turn) == len(segment.action):
            heavy = segment.action & (segment.turn < episode.repeated) & (segment.weight != 0)
            where, detail = f"segments[{index}].weight", "another episode's token"
            yield from _each(Reason.WEIGHT_ON_PREFIX, where, heavy, detail)


def _lag_rules(episode: Episode, learner: int, limit: int) -> Iterator[Violation]:
    oldest = oldest_version(episode)
    if oldest is not None and learner - oldest > limit:
        detail = (
            f"lag {learner - oldest} of version {oldest} at learner version {learner}, "
            f"limit {limit}"
        )
        yield Violation(Reason.STALE_VERSION, "segments.version", detail)


def _orphan_rules(
    sampled: set[int], recorded: Mapping[int, str], lineage: Mapping[int, str]
) -> Iterator[Violation]:

    for version in sorted(sampled):
        if version not in lineage:
            detail = f"version {version} is not in the learner's lineage"
        elif version in recorded and recorded[version] != lineage[version]:
            detail = (
                f"version {version} is {recorded[version]}, the learner's is {lineage[version]}"
            )
        else:
            continue
        yield Violation(Reason.ORPHAN_VERSION, "segments.version", detail)


def _span_rules(at: str, segment: Segment) -> Iterator[Violation]:
    end = 0
    for number, span in enumerate(segment.spans):
        if span.start != end or span.end <= span.start:
            detail = f"{span.start}:{span.end} does not continue at {end}"
            yield Violation(Reason.SPAN_TABLE, f"{at}.spans[{number}]", detail)
            return
        end = span.end
    if end != len(segment):
        detail = f"spans end at {end} of {len(segment)} tokens"
        yield Violation(Reason.SPAN_TABLE, f"{at}.spans", detail)
        return
    expected = np.zeros(len(segment), dtype=np.bool_)
    for span in segment.spans:
        expected[span.start : span.end] = span.kind in ACTION_SPANS
    wrong = expected != segment.action
    yield from _each(Reason.MASK_MISMATCH, f"{at}.action", wrong, "mask and span kind disagree")


def _weight_rules(at: str, segment: Segment) -> Iterator[Violation]:
    weight, action, where = segment.weight, segment.action, f"{at}.weight"
    off = ~action & (weight != 0)
    yield from _each(Reason.WEIGHT_OFF_ACTION, where, off, "loss weight off the actions")
    bad = action & ~(np.isfinite(weight) & (weight >= 0))
    yield from _each(Reason.INVALID_WEIGHT, where, bad, "negative or non-finite weight")


def _presence_rules(at: str, segment: Segment, sampled: Bools) -> Iterator[Violation]:
    stray = ~sampled & ~np.isnan(segment.logprob)
    detail = "the policy did not sample this token"
    yield from _each(Reason.LOGPROB_OFF_ACTION, f"{at}.logprob", stray, detail)
    stray = ~sampled & (segment.version != NO_VERSION)
    yield from _each(Reason.VERSION_OFF_ACTION, f"{at}.version", stray, detail)


def _logprob_rules(at: str, segment: Segment) -> Iterator[Violation]:
    logprob, action, where = segment.logprob, segment.action, f"{at}.logprob"
    missing = action & np.isnan(logprob)
    yield from _each(Reason.MISSING_LOGPROB, where, missing, "no behaviour log-prob")
    infinite = action & np.isinf(logprob)
    yield from _each(Reason.NONFINITE_LOGPROB, where, infinite, "infinite log-prob")
    positive = action & np.isfinite(logprob) & (logprob > 0)
    yield from _each(Reason.POSITIVE_LOGPROB, where, positive, "log-prob above 0")
    missing = action & (segment.version == NO_VERSION)
    yield from _each(Reason.MISSING_VERSION, f"{at}.version", missing, "no policy version")


def _support_rules(at: str, segment: Segment, sampled: Bools, needs: Needs) -> Iterator[Violation]:
    support, where = segment.support, f"{at}.support"
    if support is None:
        if needs.support and needs.logprob:
            detail = "no set, though the sampling cuts"
            yield from _each(Reason.MISSING_SUPPORT, where, sampled, detail)
        return
    named = support.counts > 0
    if needs.support is False:
        yield from _each(Reason.STRAY_SUPPORT, where, named, "a set, though nothing is cut")
        return
    detail = "the policy did not sample this token"
    yield from _each(Reason.STRAY_SUPPORT, where, named & ~sampled, detail)
    yield from _each(Reason.MISSING_SUPPORT, where, sampled & ~named, "no set among sets")
    wrong = named & ~support.ordered()
    yield from _each(Reason.INVALID_SUPPORT, where, wrong, "ids do not ascend from 0")
    outside = sampled & named & ~support.holds(segment.ids)
    yield from _each(Reason.OUTSIDE_SUPPORT, where, outside, "the token is not in its set")
    chosen = sampled & support.forced & ~outside & np.isfinite(segment.logprob)
    wrong = chosen & (segment.logprob < 0)
    yield from _each(Reason.FORCED_LOGPROB, f"{at}.logprob", wrong, "forced, but not log-prob 0")


def _order_rules(at: str, segment: Segment, sampled: Bools) -> Iterator[Violation]:
    yield from _each(
        Reason.SCHEMA, f"{at}.version", segment.version < NO_VERSION, "negative version"
    )
    versions = segment.version[sampled & (segment.version > NO_VERSION)].tolist()
    for earlier, later in pairwise(versions):
        if later < earlier:
            detail = f"version {later} after {earlier}"
            yield Violation(Reason.DECREASING_VERSION, f"{at}.version", detail)
            return


def _each(reason: Reason, where: str, wrong: Bools, detail: str) -> Iterator[Violation]:
    """One violation for all tokens where ``wrong``, placed at the first of them."""
    places = np.flatnonzero(wrong)
    if places.size:
        yield Violation(reason, f"{where}[{places[0]}]", f"{detail} ({places.size} tokens)")
