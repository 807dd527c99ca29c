"""Demonstrations that show a mistake and its recovery: played for real, and not imitated."""

from dataclasses import replace

import pytest
from calculator_world import make_world

from hexad.contract.admission import admit
from hexad.contract.faults import UserError
from hexad.contract.messages import AssistantTurn
from hexad.contract.needs import Needs
from hexad.contract.segment import SpanKind
from hexad.contract.task import Split
from hexad.environments.protocol import Demonstration
from hexad.environments.registry import family
from hexad.policy.load import load_policy
from hexad.recipe.axes import LimitsSpec
from hexad.rollout.demonstrate import record
from hexad.rollout.plan import plan_tasks
from toyworld import ToyFamily, toy_plans, toy_world


def shown(mistakes, name="calculator", tasks=60):
    made = family(name, {"mistakes": mistakes})
    return [made.demonstration(task) for task in made.tasks(Split.TRAIN, tasks)]


def test_the_share_of_demonstrations_with_a_mistake():
    for share, low, high in ((0.0, 0, 0), (0.5, 20, 40), (1.0, 60, 60)):
        count = sum(0.0 in demonstration.weights for demonstration in shown(share))
        assert low <= count <= high
    assert shown(0.5) == shown(0.5)


@pytest.mark.parametrize("name", ["calculator", "calculator-hard"])
def test_without_its_mistake_a_demonstration_is_the_one_without(name):
    for wrong, right in zip(shown(1.0, name), shown(0.0, name), strict=True):
        at = wrong.weights.index(0.0)
        assert wrong.weights.count(0.0) == 1 and len(wrong.turns) == len(wrong.weights)
        assert wrong.turns[:at] + wrong.turns[at + 1 :] == right.turns
        assert wrong.turns[at] != wrong.turns[at + 1]  # the recovery is the right call


def test_a_mistake_is_played_observed_and_left_out_of_the_loss():
    world = make_world(load_policy("builtin:tiny", seed=0))
    made = family("calculator", {"mistakes": 1.0, "operations": {2: 1.0}})
    world = replace(world, family=made)
    tasks = made.tasks(Split.TRAIN, 4)
    for task, episode in zip(
        tasks,
        record(plan_tasks(tasks, 1, prefix="g", seed=0, environment="calculator"), world),
        strict=True,
    ):
        (segment,) = episode.segments
        at = made.demonstration(task).weights.index(0.0)
        mistake = segment.action & (segment.turn == at)
        assert not segment.weight[mistake].any()
        assert set(segment.weight[segment.action & ~mistake]) == {1.0}
        seen = [span for span in segment.spans if span.kind is SpanKind.OBSERVATION]
        assert len(seen) == 3 and episode.verdict.success and episode.costs.turns == 4
        assert admit(episode, Needs.for_sft()) == []


def test_a_weight_for_every_turn_or_none():
    class Lopsided(ToyFamily):
        def demonstration(self, task):
            return Demonstration(task, (AssistantTurn("a"), AssistantTurn(".")), (1.0,))

    with pytest.raises(UserError, match="2 turns and 1 weights"):
        record(toy_plans(1), replace(toy_world([]), family=Lopsided()))
    limits = LimitsSpec(turns=6, turn_tokens=8, context_tokens=64)
    (episode,) = record(toy_plans(1), replace(toy_world([]), limits=limits))
    assert set(episode.segments[0].weight[episode.segments[0].action]) == {1.0}
