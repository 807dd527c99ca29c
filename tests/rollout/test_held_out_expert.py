"""The expert whom an evaluation listens to, beside the policy that it evaluates."""

from dataclasses import replace

from calculator_world import make_world

from hexad.contract.task import Split
from hexad.environments.registry import family
from hexad.evidence.imitation import Imitation
from hexad.policy.load import load_policy


def test_the_expert_is_not_cut_by_the_policys_limits_but_by_the_models_positions():
    made = family("calculator")
    world = make_world(load_policy("builtin:tiny", seed=0))
    world = replace(world, limits=world.limits.model_copy(update={"turns": 1}))
    tasks = made.tasks(Split.SELECTION, 8)
    seen = []

    def loss(episodes):
        seen.append([len(episode.segments[0]) for episode in episodes])
        return 0.0, 1

    Imitation(world, loss, 2048)(Split.SELECTION, tasks, [])
    assert len(seen[0]) == 8
    short = sorted(seen[0])[3]
    Imitation(world, loss, short)(Split.SELECTION, tasks, [])
    assert seen[1] == [length for length in seen[0] if length <= short]
