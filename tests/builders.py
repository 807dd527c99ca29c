"""Hand-made facts for tests: small, legal by default, every field replaceable.

>>> episode(member=3, ending=Ending.of(EndingKind.TRUNCATED_TURNS))
>>> segment(runs(user=3, text=2, observation=2, tool_call=4), logprob=-0.25)
"""

from dataclasses import replace

import numpy as np

from hexad.contract.ending import Ending, EndingKind
from hexad.contract.episode import Actor, Costs, Episode, Times
from hexad.contract.provenance import PARTS, Provenance
from hexad.contract.reward import Reward
from hexad.contract.segment import ACTION_SPANS, NO_VERSION, Segment, Span, SpanKind
from hexad.contract.support import Support
from hexad.contract.task import Split
from hexad.contract.verdict import Verdict, VerdictStatus

DEFAULT_RUNS = (
    ("system", 2),
    ("user", 2),
    ("template", 1),
    ("tool_call", 3),
    ("template", 1),
    ("observation", 2),
    ("template", 1),
    ("text", 2),
)
"""A system prompt, a question, a tool call, its result and an answer: 14 tokens, 5 actions."""


def spans_of(runs=DEFAULT_RUNS):
    """Spans of ``(kind, length)`` runs, and the turn of every token.

    A turn ends after an action run that is followed by something else.
    """
    spans, turns, start, turn = [], [], 0, 0
    for number, (kind, length) in enumerate(runs):
        kind = SpanKind(kind)
        name = "calculate" if kind in (SpanKind.TOOL_CALL, SpanKind.OBSERVATION) else ""
        spans.append(Span(kind, name, turn, start, start + length))
        turns += [turn] * length
        start += length
        later = runs[number + 1 :]
        acts_again = any(SpanKind(k) in ACTION_SPANS for k, _ in later)
        seam = later and SpanKind(later[0][0]) not in ACTION_SPANS
        if kind in ACTION_SPANS and seam and acts_again:
            turn += 1
    return tuple(spans), np.array(turns, np.int32)


def segment(runs=DEFAULT_RUNS, *, logprob=-0.5, version=0, policy=True, **changes):
    """A segment of ``runs``; ``policy=False`` leaves out log-probs and versions (expert data)."""
    spans, turn = spans_of(runs)
    count = len(turn)
    action = np.zeros(count, np.bool_)
    for span in spans:
        action[span.start : span.end] = span.kind in ACTION_SPANS
    sampled = action if policy else np.zeros(count, np.bool_)
    values = {
        "ids": np.arange(10, 10 + count, dtype=np.int32),
        "action": action,
        "weight": action.astype(np.float32),
        "logprob": np.where(sampled, np.float32(logprob), np.float32(np.nan)),
        "version": np.where(sampled, version, NO_VERSION).astype(np.int32),
        "turn": turn,
        "spans": spans,
    }
    return Segment(**(values | changes))


def support_of(sets):
    """The support of these sets, one sequence of ids a token."""
    sizes = np.cumsum([0, *(len(ids) for ids in sets)])
    return Support(np.array([i for ids in sets for i in ids], np.int32), sizes)


def cut_segment(*, forced=(5,), **changes):
    """A segment drawn from a cut vocabulary: three ids a token, one alone where ``forced``."""
    base = segment(**changes)
    sets, logprob = [], base.logprob.copy()
    for place, (token, acted) in enumerate(zip(base.ids.tolist(), base.action, strict=True)):
        alone = place in forced
        sets.append(([token] if alone else [token - 1, token, token + 4]) if acted else [])
        if alone:
            logprob[place] = 0.0
    return replace(base, logprob=logprob, support=support_of(sets))


def provenance(**changes):
    """Provenance whose digests are ``tokenizer-1`` and so on, with version 0 recorded."""
    parts = {part: f"{part}-1" for part in PARTS} | {"adapter": "none"}
    return Provenance(**(parts | {"versions": ((0, "weights-0"),)} | changes))


def verdict(status="correct", score=None):
    """A verdict; correct scores 1, wrong and the like 0, the unscored ones nothing."""
    status = VerdictStatus(status)
    usual = Verdict(status, 0.0)
    if score is None and usual.scored:
        score = 1.0 if status is VerdictStatus.CORRECT else 0.0
    return Verdict(status, score)


def episode(number=0, **changes):
    """A solved, legal episode; ``number`` only gives it its own id and its place in the group."""
    made = Episode(
        episode_id=f"episode-{number}",
        task_id="task-0",
        group_id="group-0",
        member=number,
        split=Split.TRAIN,
        environment="calculator",
        initial_state="state-0",
        seed=7,
        segments=(segment(),),
        ending=Ending.of(EndingKind.TERMINAL),
        provenance=provenance(),
        rewards=(Reward("task", 1.0),),
        verdict=verdict(),
        costs=Costs(sampled_tokens=5, observation_tokens=2, tool_calls=1, turns=2),
        times=Times(started=1.5e9, seconds=2.0, engine_seconds=1.0, tool_seconds=0.25),
    )
    return replace(made, **changes)


def attempt(member, score, *, length=5, **changes):
    """An attempt at the task of group ``g`` with a score: right above .5, its answer its own."""
    row = segment((("user", 3), ("text", length)))
    ids = np.arange(len(row), dtype=np.int32)
    ids[3:] += 100 * (member + 1)
    usual = {
        "episode_id": f"g-{member}",
        "group_id": "g",
        "segments": (replace(row, ids=ids),),
        "verdict": verdict("correct" if score > 0.5 else "wrong"),
        "rewards": (Reward("task", score),),
    }
    return episode(member, **(usual | changes))


def expert(number=0, **changes):
    """A demonstration: no log-probs, no versions, nobody sampled it, nobody judged it."""
    usual = {
        "segments": (segment(policy=False),),
        "provenance": provenance(versions=(), sampler="none", engine="none"),
        "actor": Actor.EXPERT,
        "rewards": (),
        "verdict": None,
    }
    return episode(number, **(usual | changes))
