"""Experts go through the same loop and recorder, and are seen not to be the policy."""

from dataclasses import replace

import numpy as np
import pytest

from hexad.contract.admission import admit, admit_group
from hexad.contract.ending import EndingKind
from hexad.contract.episode import Actor
from hexad.contract.faults import UserError
from hexad.contract.messages import AssistantTurn
from hexad.contract.needs import Needs
from hexad.environments.protocol import Demonstration
from hexad.recipe.axes import LimitsSpec
from hexad.rollout.demonstrate import record
from toyworld import ToyFamily, toy_plans, toy_world


def test_demonstrations_pass_admission_for_imitation_and_fail_it_for_ratios():
    episodes = record(toy_plans(3), toy_world([]))
    for episode in episodes:
        (segment,) = episode.segments
        assert episode.actor is Actor.EXPERT and episode.ending.kind is EndingKind.TERMINAL
        assert segment.weight[segment.action].tolist() == [1.0] * 4
        assert np.isnan(segment.logprob).all() and (segment.version == -1).all()
        assert episode.provenance.versions == () and episode.provenance.engine == "none"
        assert episode.costs.sampled_tokens == 0 and episode.verdict.success
        assert admit(episode, Needs.for_sft()) == []
        assert admit(episode, Needs()) != []
    assert admit_group(episodes, Needs.for_sft()) == []
    assert [e.task_id for e in episodes] == ["toy:0", "toy:1", "toy:2"]


class Endless(ToyFamily):
    def demonstration(self, task):
        return Demonstration(task, (AssistantTurn("a"),))


class Wordy(ToyFamily):
    def demonstration(self, task):
        return Demonstration(task, (AssistantTurn("abcdefghijk"),))


class Long(ToyFamily):
    def demonstration(self, task):
        return Demonstration(task, (AssistantTurn("a"),) * 7)


@pytest.mark.parametrize(
    ("family", "message"),
    [
        (Endless, "do not end the episode"),
        (Wordy, "has 12 tokens, 8 are left"),
        (Long, r"was cut: limits\.turns"),
    ],
)
def test_a_demonstration_that_does_not_fit_is_the_users_mistake(family, message):
    with pytest.raises(UserError, match=message):
        record(toy_plans(1), replace(toy_world([]), family=family()))


def test_a_larger_limit_is_the_way_out():
    limits = LimitsSpec(turns=8, turn_tokens=8, context_tokens=128)
    with pytest.raises(UserError, match="do not end"):
        record(toy_plans(1), replace(toy_world([]), family=Long(), limits=limits))
