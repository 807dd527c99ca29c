"""The recorder stores what was sampled, where it was sampled, and nothing else."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hexad.contract.episode import Actor
from hexad.contract.faults import ContractViolation
from hexad.contract.segment import Span, SpanKind
from hexad.contract.support import Support
from hexad.policy.engine import Completion, Stop
from hexad.rollout.recorder import Recorder
from toyworld import Rendered


def rendered(*runs):
    ids, spans = [], []
    for kind, piece in runs:
        spans.append(Span(kind, "", 0, len(ids), len(ids) + len(piece)))
        ids += piece
    return Rendered(np.array(ids, np.int32), tuple(spans))


def sampled(ids, logprobs=None, version=0):
    logprobs = [-0.5] * len(ids) if logprobs is None else logprobs
    versions = np.full(len(ids), version, np.int32)
    return Completion(np.array(ids, np.int32), np.array(logprobs, np.float32), versions, Stop.TOKEN)


def text(count, kind=SpanKind.TEXT):
    return (Span(kind, "", 0, 0, count),)


def record_o01(recorder):
    recorder.start(rendered((SpanKind.USER, [20, 21])))
    recorder.completion(recorder.context, sampled([1, 2, 5], [-0.5, -0.7, -0.1], 3), text(3))
    suffix = rendered((SpanKind.OBSERVATION, [10, 11, 12]), (SpanKind.TEMPLATE, [6]))
    recorder.observation(suffix)


def test_o01_row_and_mask_are_the_sampled_ones():
    recorder = Recorder()
    record_o01(recorder)
    assert recorder.context.tolist() == [20, 21, 1, 2, 5, 10, 11, 12, 6]
    recorder.completion(recorder.context, sampled([7, 5], [-0.2, -0.3], 4), text(2))
    segment = recorder.finish()
    assert segment.ids.tolist() == [20, 21, 1, 2, 5, 10, 11, 12, 6, 7, 5]
    assert segment.action.astype(int).tolist() == [0, 0, 1, 1, 1, 0, 0, 0, 0, 1, 1]
    expected = np.array([-0.5, -0.7, -0.1, -0.2, -0.3], np.float32)
    assert segment.logprob[segment.action].tolist() == expected.tolist()
    assert np.isnan(segment.logprob[~segment.action]).all()
    assert segment.version.tolist() == [-1, -1, 3, 3, 3, -1, -1, -1, -1, 4, 4]
    assert segment.weight.tolist() == segment.action.astype(float).tolist()
    assert segment.turn.tolist() == [0] * 5 + [1] * 6
    assert [(s.kind, s.turn, s.start, s.end) for s in segment.spans] == [
        (SpanKind.USER, 0, 0, 2),
        (SpanKind.TEXT, 0, 2, 5),
        (SpanKind.OBSERVATION, 1, 5, 8),
        (SpanKind.TEMPLATE, 1, 8, 9),
        (SpanKind.TEXT, 1, 9, 11),
    ]


def test_the_final_observation_keeps_the_last_turn():
    recorder = Recorder()
    record_o01(recorder)
    segment = recorder.finish()
    assert segment.turn.tolist() == [0] * 9
    assert {span.turn for span in segment.spans} == {0}


def test_an_experts_tokens_are_actions_without_logprob_and_version():
    recorder = Recorder(Actor.EXPERT)
    recorder.start(rendered((SpanKind.USER, [20])))
    nobody = sampled([1, 5], [np.nan, np.nan], -1)
    recorder.completion(recorder.context, nobody, text(2))
    segment = recorder.finish()
    assert segment.action.tolist() == [False, True, True]
    assert segment.weight.tolist() == [0, 1, 1]
    assert np.isnan(segment.logprob).all() and (segment.version == -1).all()


@pytest.mark.parametrize(
    ("actor", "completion"),
    [
        (Actor.POLICY, sampled([1, 5], [np.nan, -1.0])),
        (Actor.POLICY, sampled([1, 5], [-1.0, -1.0], version=-1)),
        (Actor.POLICY, sampled([1, 5], [-1.0])),
        (Actor.EXPERT, sampled([1, 5])),
    ],
)
def test_log_probs_that_do_not_fit_the_actor_are_refused(actor, completion):
    recorder = Recorder(actor)
    recorder.start(rendered((SpanKind.USER, [20])))
    with pytest.raises(ContractViolation):
        recorder.completion(recorder.context, completion, text(2))


def test_o02_a_rewritten_context_is_refused():
    recorder = Recorder()
    record_o01(recorder)
    rewritten = np.array([20, 21, 3, 5, 10, 11, 12, 6], np.int32)
    with pytest.raises(ContractViolation, match="another context"):
        recorder.completion(rewritten, sampled([7, 5]), text(2))


@pytest.mark.parametrize(
    "spans",
    [
        (),
        text(1),
        text(3),
        text(2, SpanKind.OBSERVATION),
        (Span(SpanKind.TEXT, "", 0, 0, 1), Span(SpanKind.TEXT, "", 0, 0, 2)),
        (Span(SpanKind.TEXT, "", 0, 1, 2),),
    ],
)
def test_spans_must_cover_the_completion_exactly(spans):
    recorder = Recorder()
    recorder.start(rendered((SpanKind.USER, [20])))
    with pytest.raises(ContractViolation):
        recorder.completion(recorder.context, sampled([1, 5]), spans)


tokens = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=6)


@settings(max_examples=60, deadline=None)
@given(prompt=tokens, turns=st.lists(st.tuples(tokens, tokens), max_size=5))
def test_arbitrary_sampled_ids_are_trained_ids(prompt, turns):
    recorder = Recorder()
    recorder.start(rendered((SpanKind.USER, prompt)))
    row, spoken = list(prompt), []
    for ids, answer in turns:
        recorder.completion(recorder.context, sampled(ids), text(len(ids)))
        recorder.observation(rendered((SpanKind.OBSERVATION, answer)))
        row, spoken = row + ids + answer, spoken + ids
    segment = recorder.finish()
    assert segment.ids.tolist() == row
    assert segment.ids[segment.action].tolist() == spoken
    assert int(np.isfinite(segment.logprob).sum()) == len(spoken) == segment.action_count
    assert segment.spans[-1].end == len(segment)


def test_sets_are_stored_with_the_tokens_that_they_belong_to():
    recorder = Recorder()
    recorder.start(rendered((SpanKind.USER, [20, 21])))
    first = replace(sampled([1, 5]), support=Support.of([[0, 1], [4, 5, 6]]))
    recorder.completion(recorder.context, first, text(2))
    recorder.observation(rendered((SpanKind.OBSERVATION, [10])))
    recorder.completion(recorder.context, replace(sampled([7]), support=Support.of([[7]])), text(1))
    segment = recorder.finish()
    assert segment.support == Support.of([[], [], [0, 1], [4, 5, 6], [], [7]])
    assert segment.forced.tolist() == [False] * 5 + [True]


def test_a_turn_without_sets_among_turns_with_sets_has_empty_ones():
    recorder = Recorder()
    recorder.start(rendered((SpanKind.USER, [20])))
    recorder.completion(recorder.context, sampled([1, 5]), text(2))
    recorder.completion(recorder.context, replace(sampled([7]), support=Support.of([[7]])), text(1))
    assert recorder.finish().support == Support.of([[], [], [], [7]])


def test_no_sets_at_all_are_the_full_vocabulary():
    recorder = Recorder()
    record_o01(recorder)
    assert recorder.finish().support is None


def test_as_many_sets_as_tokens_or_none():
    recorder = Recorder()
    recorder.start(rendered((SpanKind.USER, [20])))
    short = replace(sampled([1, 5]), support=Support.of([[1]]))
    with pytest.raises(ContractViolation, match="different lengths"):
        recorder.completion(recorder.context, short, text(2))
