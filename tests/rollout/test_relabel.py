"""DAgger's labels: every visited state has exactly one, and the visitor's errors are history."""

from dataclasses import replace

import numpy as np
import pytest
from calculator_world import make_world

from hexad.contract.admission import admit, admit_group
from hexad.contract.episode import Actor
from hexad.contract.faults import ContractViolation
from hexad.contract.needs import Needs
from hexad.contract.segment import ACTION_SPANS
from hexad.contract.task import Split
from hexad.environments.registry import family
from hexad.policy.load import load_policy
from hexad.rollout.demonstrate import record
from hexad.rollout.plan import plan_tasks
from hexad.rollout.relabel import relabelled

WORLD = make_world(load_policy("builtin:tiny", seed=0))


def visits(mistakes, count=12):
    """Episodes of somebody who errs in that share of them, with their tasks and their world."""
    made = family("calculator", {"mistakes": mistakes, "operations": {1: 0.2, 2: 0.4, 3: 0.4}})
    world = replace(WORLD, family=made)
    tasks = made.tasks(Split.TRAIN, count)
    plans = plan_tasks(tasks, 1, prefix="g", seed=0, environment="calculator")
    return list(zip(record(plans, world), tasks, strict=True)), world


ERRING, ERRING_WORLD = visits(1.0)


def acted(segment):
    """(turn, ids) of every turn that counts."""
    turns = sorted(set(segment.turn[segment.action].tolist()))
    return [(t, segment.ids[segment.action & (segment.turn == t)].tolist()) for t in turns]


def test_the_labels_of_a_visitor_who_errs_once():
    expert = family("calculator")
    for episode, task in ERRING:
        found = relabelled(episode, task, expert, ERRING_WORLD)
        shown = ERRING_WORLD.family.demonstration(task)
        mistake = shown.weights.index(0.0)
        states = len(shown.turns)
        assert (found.states, found.agreed, found.unlabelled) == (states, states - 1, 0)
        first, second = found.episode.segments
        (visited,) = episode.segments
        right = ERRING_WORLD.chat.encode(shown.turns[mistake + 1]).tolist()
        assert acted(first)[-1] == (mistake, right)
        start = len(first) - len(right)
        assert first.ids[:start].tolist() == visited.ids[:start].tolist()
        assert second.ids.tolist() == visited.ids[: len(second)].tolist()
        assert [turn for turn, _ in acted(first)] == list(range(mistake + 1))
        assert [turn for turn, _ in acted(second)] == list(range(mistake + 1, states))
        assert not second.action[visited.turn[: len(second)] <= mistake].any()


def test_labels_are_the_experts_and_are_admitted_for_imitation():
    episodes = [relabelled(*visit, family("calculator"), ERRING_WORLD).episode for visit in ERRING]
    for episode in episodes:
        assert episode.actor is Actor.EXPERT and episode.provenance.engine == "none"
        assert admit(episode, Needs.for_sft()) == []
        for segment in episode.segments:
            assert (segment.weight == segment.action).all() and np.isnan(segment.logprob).all()
            spans = [s for s in segment.spans if s.kind in ACTION_SPANS]
            assert {s.turn for s in spans} == set(segment.turn[segment.action].tolist())
    assert admit_group(episodes, Needs.for_sft()) == []


def test_an_expert_visitor_is_its_own_label():
    for (episode, task), world in ((visit, w) for found, w in [visits(0.0, 3)] for visit in found):
        found = relabelled(episode, task, world.family, world)
        assert found.agreed == found.states
        (segment,), (visited,) = found.episode.segments, episode.segments
        assert segment.ids.tolist() == visited.ids.tolist()
        assert segment.action.tolist() == visited.action.tolist()


def test_states_without_a_label_are_counted():
    episode, task = ERRING[0]

    class Lost:
        def advice(self, task, transcript):
            return ()

    found = relabelled(episode, task, Lost(), ERRING_WORLD)
    assert found.episode is None and found.unlabelled == found.states > 2
    limits = ERRING_WORLD.limits.model_copy(update={"turn_tokens": 4})
    cut = relabelled(episode, task, family("calculator"), replace(ERRING_WORLD, limits=limits))
    assert 0 < cut.unlabelled < cut.states  # calls do not fit, the answer does
    assert sum(len(acted(s)) for s in cut.episode.segments) == cut.states - cut.unlabelled


def test_an_episode_of_several_contexts_is_refused():
    episode, task = ERRING[0]
    with pytest.raises(ContractViolation, match="2 contexts"):
        relabelled(
            replace(episode, segments=episode.segments * 2),
            task,
            ERRING_WORLD.family,
            ERRING_WORLD,
        )
