from contextlib import ExitStack
from types import SimpleNamespace

import pytest

from hexad.contract.faults import UserError
from hexad.environments.wrap import DisturbedFamily
from hexad.feedback.flaky import FlakyVerifier
from hexad.recipe.load import load
from hexad.rollout.build import independent, policy_of, world_of

GRPO = "method: grpo\nbudget: {episodes: 64}\n"
SFT = "method: sft\nbudget: {episodes: 64}\n"


def recipe_of(folder, text, *overrides):
    path = folder / "r.yaml"
    path.write_text(text)
    return load(path, list(overrides))


@pytest.mark.parametrize(
    ("text", "override", "where", "says"),
    [
        (GRPO, "task.latency={kind: pareto, mean: 0.5}", "task.latency.alpha", "needs it"),
        (GRPO, "task.latency={kind: lognormal, mean: 0.5}", "task.latency.sigma", "needs it"),
        (
            GRPO,
            "task.latency={kind: constant, mean: 0.5, sigma: 1.0}",
            "task.latency.sigma",
            "does not read it",
        ),
        (GRPO, "task.latency={kind: pareto, mean: 0.5, alpha: 1}", "task.latency.alpha", "1"),
        (GRPO, "task.latency={kind: constant, mean: 0}", "task.latency.mean", "0"),
        (GRPO, "task.latency={kind: constant, mean: 90.0}", "task.latency.mean", "hanging"),
        (GRPO, "task.latency={kind: gamma, mean: 0.5}", "task.latency.kind", "lognormal"),
        (GRPO, "task.chaos={crash: 0.6, hang: 0.5}", "task.chaos", "at most 1"),
        (GRPO, "task.chaos={crush: 0.6}", "task.chaos.crush", "crash"),
        (GRPO, "task.chaos={slow_start: {p: 0.5}}", "task.chaos.slow_start.seconds", "missing"),
        (SFT, "task.latency={kind: constant, mean: 0.5}", "task.latency", "no environment"),
        (SFT, "task.chaos={crash: 0.5}", "task.chaos", "no environment"),
    ],
)
def test_a_disturbance_that_cannot_be_is_refused(tmp_path, text, override, where, says):
    with pytest.raises(UserError) as caught:
        recipe_of(tmp_path, text, override)
    assert where in str(caught.value) and says in str(caught.value)


def test_the_recipe_reaches_environment_verifier_and_patience(tmp_path):
    recipe = recipe_of(
        tmp_path,
        GRPO,
        "task.latency={kind: pareto, mean: 0.5, alpha: 1.5, cap: 8.0}",
        "task.chaos={crash: 0.1, flaky_verifier: 0.2}",
        "task.limits.step_seconds=9",
        "task.limits.reset_seconds=7",
    )
    engine = SimpleNamespace(digest="engine")
    with ExitStack() as held:
        world = world_of(recipe, policy_of(recipe), engine, str, held)
        assert isinstance(world.family, DisturbedFamily)
        assert isinstance(world.feedback.verifier, FlakyVerifier)
        assert (world.patience.reset, world.patience.step) == (7.0, 9.0)
        other = independent(world, recipe, held)
        assert other.family is world.family and other.feedback.digest != world.feedback.digest
    with ExitStack() as held:
        plain = recipe_of(tmp_path, GRPO)
        world = world_of(plain, policy_of(plain), engine, str, held)
        assert not isinstance(world.family, DisturbedFamily)
