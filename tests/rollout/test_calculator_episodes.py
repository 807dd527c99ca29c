"""The real parts together: tiny policy, local engine, calculator, verifier."""

import pytest
import torch
from calculator_world import make_world, plans

from hexad.contract.admission import admit, admit_group
from hexad.contract.messages import Role
from hexad.contract.needs import Needs
from hexad.contract.segment import SpanKind
from hexad.policy.load import load_policy
from hexad.rollout.collect import collect
from hexad.rollout.demonstrate import record
from toyworld import untimed


@pytest.fixture(scope="module")
def policy():
    return load_policy("builtin:tiny", seed=0)


def test_a_real_rollout_is_the_same_bits_whatever_takes_how_long(policy):
    results = []
    for delays in (None, 1, 2):
        world = make_world(policy, delays)
        episodes = collect(plans(world, 4, 3), world, rows=5)
        results.append([untimed(e) for e in episodes])
    assert results[0] == results[1] == results[2]
    assert all(admit(e, Needs(lineage={0: "lineage"})) == [] for e in results[0])
    assert admit_group(results[0], Needs()) == []


def test_recorded_log_probs_are_the_models_own_on_the_recorded_row(policy):
    world = make_world(policy)
    for episode in collect(plans(world, 2, 2), world):
        (segment,) = episode.segments
        ids = torch.from_numpy(segment.ids.astype("int64"))
        with torch.no_grad():
            logits = policy.model(ids[None]).logits[0].float()
        own = torch.log_softmax(logits[:-1], -1).gather(1, ids[1:, None])[:, 0]
        action = torch.from_numpy(segment.action.copy())
        assert not action[0]
        gap = own[action[1:]] - torch.from_numpy(segment.logprob[segment.action])
        assert gap.abs().max() < 1e-4


def test_expert_rows_are_the_one_shot_render_and_are_judged_correct(policy):
    world = make_world(policy)
    for episode in record(plans(world, 12, 1), world):
        assert episode.verdict.success
        assert admit(episode, Needs.for_sft()) == []
        (segment,) = episode.segments
        kinds = {span.kind for span in segment.spans if segment.action[span.start]}
        assert kinds == {SpanKind.TOOL_CALL, SpanKind.TEXT}
        transcript = world.chat.decode(episode.segments)
        assert [m.role for m in transcript[-2:]] == [Role.TOOL, Role.ASSISTANT]
        again = policy.tokenizer.encode(
            policy.tokenizer.decode(segment.ids.tolist()), add_special_tokens=False
        )
        assert again == segment.ids.tolist()
        assert segment.turn[-1] == episode.costs.turns - 1 == episode.costs.tool_calls
