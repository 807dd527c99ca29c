"""Field cases O14, O16 and O18 through the asynchronous source, with the numbers as written."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from scripted_workers import ScriptedWorkers, scripted_episode
from source_bench import Bench, orders, recipe

import builders
from hexad.contract.ending import Ending, EndingKind
from hexad.contract.reward import Reward
from hexad.learner.assemble import assemble
from hexad.learner.assign import Assigner
from hexad.learner.batch import Scores
from hexad.recipe.axes import CreditSpec

O14 = {0: (0, 0, 0), 1: (1, 1, 3), 2: (1, 1), 3: (3, 3)}
"""R1 to R4: the version of every sampled token."""


def rollout(play, versions, rng):
    """R1 to R4 by task number."""
    stamps = O14[play.index]
    part = builders.segment((("user", 2), ("text", len(stamps))))
    part = replace(part, version=np.array([-1, -1, *stamps], np.int32))
    made = scripted_episode(play, versions, rng)
    known = tuple((version, f"digest-{version}") for version in sorted(set(stamps)))
    costs = replace(made.costs, sampled_tokens=len(stamps))
    provenance = builders.provenance(versions=known)
    return replace(made, segments=(part,), provenance=provenance, costs=costs)


@pytest.mark.parametrize(
    ("max_lag", "kept", "dropped"),
    [
        (2, "R2 R3 R4", {"R1": (3, 3)}),
        (1, "R4", {"R1": (3, 3), "R2": (2, 3), "R3": (2, 2)}),
        (0, "R4", {"R1": (3, 3), "R2": (2, 3), "R3": (2, 2)}),
    ],
)
def test_o14_the_table_as_written(tmp_path, max_lag, kept, dropped):
    plan = recipe(groups=4, count=4, max_lag=max_lag)
    made = Bench(plan, ScriptedWorkers(rollout), tmp_path, version=3)
    made.lineage.update({version: f"digest-{version}" for version in range(3)})
    harvest = made.batch()
    names = {f"toy:{index}": f"R{index + 1}" for index in O14}
    assert [names[e.task_id] for e in harvest.episodes] == kept.split()
    found = {}
    for episode, reason in harvest.dropped:
        assert reason == "stale_version"
        oldest = min(version for version, _ in episode.provenance.versions)
        found[names[episode.task_id]] = (3 - oldest, episode.action_count)
    assert found == dropped and harvest.exhausted
    exits = made.source._governor.exits
    assert exits == Counter(trained=len(kept.split()), stale=len(dropped))
    assert {order.index for order in orders(made.backend)} == {0, 1, 2, 3}


def grouped(fates):
    """Members by their fate: a reward, ``crash``, or a verifier that says nothing."""

    def answer(play, versions, rng):
        made, fate = scripted_episode(play, versions, rng), fates[play.member]
        if fate == "crash":
            ending = Ending.of(EndingKind.ENVIRONMENT_ERROR, "the container is gone")
            return replace(made, ending=ending, rewards=(), verdict=None)
        if fate is None:
            return replace(made, rewards=(), verdict=builders.verdict("verifier_error"))
        solved = builders.verdict("correct" if fate > 0 else "wrong")
        return replace(made, verdict=solved, rewards=(Reward("task", float(fate)),))

    return answer


@pytest.mark.parametrize(
    ("fates", "expected", "exits"),
    [
        ((1, 0, "crash", None), (0.5, -0.5, 0, 0), {"trained": 2, "fault": 1, "unscored": 1}),
        ((None, -1, -1, None), (0, 0, 0, 0), {"trained": 2, "unscored": 2}),
    ],
)
def test_o16_the_groups_as_written_and_what_the_learner_makes_of_them(
    tmp_path, fates, expected, exits
):
    plan = recipe(groups=1, size=4, max_lag=0, fault_limit=1.0, count=1)
    feedback = plan.feedback.model_copy(update={"unscored_limit": 1.0})
    plan = plan.model_copy(update={"feedback": feedback, "credit": CreditSpec(estimator="dr_grpo")})
    made = Bench(plan, ScriptedWorkers(grouped(fates)), tmp_path)
    harvest = made.batch()
    assert made.source._governor.exits == exits
    assert [e.member for e in harvest.episodes] == [
        m for m, f in enumerate(fates) if f not in ("crash", None)
    ]
    batch = assemble(harvest.episodes, plan.feedback.weights)
    credit = Assigner(plan)(batch, Scores(), None)
    by_member = dict.fromkeys(range(4), 0.0)
    for token in batch.action.nonzero().flatten().tolist():
        member = batch.episodes[int(batch.token_episode[token])].member
        by_member[member] = float(credit.advantage[token])
    assert tuple(by_member.values()) == expected


def test_o18_the_tail_is_trained_on_once_and_the_data_ends(tmp_path):
    made = Bench(recipe(groups=2, count=3, max_lag=1), ScriptedWorkers(), tmp_path)
    harvests = [made.batch(), made.batch()]
    assert [[e.task_id for e in h.episodes] for h in harvests] == [["toy:0", "toy:1"], ["toy:2"]]
    assert [h.exhausted for h in harvests] == [False, True]


def test_o18_a_stale_task_does_not_hold_the_cursor_back_over_a_resume(tmp_path):
    def answer(play, versions, rng):
        chosen = {0: versions[0]} if play.index == 2 else versions
        return scripted_episode(play, chosen, rng)

    plan = recipe(groups=2, max_lag=0)
    made = Bench(plan, ScriptedWorkers(answer), tmp_path)
    trained = [e.task_id for _ in range(2) for e in made.batch().episodes]
    assert trained == ["toy:0", "toy:1", "toy:3", "toy:4"]
    again = Bench(plan, ScriptedWorkers(), tmp_path, version=2)
    again.lineage.update(made.lineage)
    again.source.restore(made.source.state())
    assert [e.task_id for e in again.batch().episodes] == ["toy:5", "toy:6"]
