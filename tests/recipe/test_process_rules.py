"""What a recipe with process signals, gates and constraints must say, and what it must not."""

import pytest

from hexad.contract.faults import UserError
from hexad.recipe.load import load

BUDGET = "budget: {episodes: 64}\n"
POTENTIAL = "feedback.process={p: {signal: remaining_operations, paid: potential}}"
INCREMENT = "feedback.process={p: {signal: remaining_operations, paid: increment}}"
GUARD = "task.guard={forbidden: [{tool: calculate}]}"
PRICES = "feedback.costs={call: 0.1}"
VINE = "credit={estimator: vine, clock: turn, continuations: 9, truncation: score}"


def held(text):
    return f"feedback.constraints={{c: {{{text}}}}}"


CASES = [
    ("grpo", [POTENTIAL], "feedback.process.p.paid"),
    ("ppo", [POTENTIAL, "feedback.process.p.owner=call"], "feedback.process.p.owner"),
    ("ppo", [POTENTIAL.replace("p:", "cost:", 1)], "feedback.process.cost"),
    ("grpo", ["feedback.gate={reward: 0}"], "feedback.gate"),
    ("grpo", ["feedback.weights={gate: 2.0}"], "feedback.weights.gate"),
    ("grpo", [held("of: calls, limit: 1")], "feedback.constraints.c.rate"),
    ("grpo", [held("of: calls, limit: 1, rate: 1, pid: {}")], "feedback.constraints.c.rate"),
    ("grpo", [held("of: calls, limit: 1, rate: 1, initial: 2, most: 1")], "constraints.c.initial"),
    ("grpo", [held("of: cost, limit: 1, rate: 1")], "feedback.constraints.c.of"),
    ("grpo", [PRICES, held("of: cost, limit: 1, rate: 1")], "feedback.constraints.c.of"),
    ("grpo", [held("of: violations, limit: 1, rate: 1")], "feedback.constraints.c.of"),
    ("sft", [PRICES], "feedback.costs"),
    ("rejection", [held("of: calls, limit: 1, rate: 1")], "feedback.constraints"),
    ("rejection", [PRICES], "feedback.costs"),
    ("dagger", [GUARD, "feedback.gate={reward: 0}"], "feedback.gate"),
    ("ppo", ["feedback.length={}", "data.group_size=1"], "feedback.length"),
    ("grpo", [VINE, PRICES, "method=reinforce"], "feedback.costs"),
    ("reinforce", ["credit.baseline=greedy", "feedback.length={}"], "feedback.length"),
]
GOOD = [
    ("ppo", [POTENTIAL, "credit.clock=turn"]),
    ("grpo", [INCREMENT, "feedback.process.p.owner=call", PRICES]),
    ("grpo", [GUARD, "feedback.gate={reward: -1}", held("of: violations, limit: 0, pid: {}")]),
    ("grpo", [PRICES, "feedback.weights={cost: 0}", held("of: cost, limit: 1, rate: 1")]),
    ("grpo", ["feedback.length={begin: 0.5}", "feedback.effort={budget: 30, factor: 2}"]),
    ("rejection", ["data.rounds.keep=best", PRICES, INCREMENT]),
    ("rejection", [GUARD, "feedback.gate={reward: 0}", "feedback.effort={budget: 30, factor: 2}"]),
]


def recipe(tmp_path, method, changes):
    budget = "budget: {train_tokens: 1000}\n" if method in ("rejection", "dagger") else BUDGET
    (tmp_path / "r.yaml").write_text(f"method: {method}\n{budget}")
    return load(tmp_path / "r.yaml", changes)


@pytest.mark.parametrize(("method", "changes", "key"), CASES)
def test_what_does_not_fit_is_refused_by_its_key(tmp_path, method, changes, key):
    with pytest.raises(UserError) as caught:
        recipe(tmp_path, method, changes)
    assert key in str(caught.value), caught.value


@pytest.mark.parametrize(("method", "changes"), GOOD)
def test_what_fits_is_read(tmp_path, method, changes):
    assert recipe(tmp_path, method, changes).method == method
