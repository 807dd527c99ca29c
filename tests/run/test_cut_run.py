"""A whole short run under a grammar and every cut: recorded, admitted, stored, trained on."""

import json

import pytest
from short_run import write_recipe

from hexad.contract.faults import UserError
from hexad.contract.store import Store
from hexad.recipe.load import load
from hexad.run import compose

CUTS = "temperature: 1.3, top_k: 60, top_p: 0.98, min_p: 0.001"
WORDS = """'start: "calculate" /[0-9]+/ "is" /[0-9]+/'"""
SHORT = ["budget.episodes=24", "run.evaluation.every=null", "task.limits.turn_tokens=16"]


@pytest.mark.parametrize("grammar", ["tool_calls", WORDS])
@pytest.mark.parametrize("steps", [2, 1])
def test_ratios_of_a_cut_run_are_those_of_its_recorded_sets(tmp_path, steps, grammar):
    run = tmp_path / "run"
    run.mkdir()
    cut = f"policy.sampling={{{CUTS}, grammar: {grammar}}}"
    recipe = load(write_recipe(tmp_path), [cut, *SHORT, f"update.minibatches={steps}"])
    with compose(recipe, run) as loop:
        loop.run(lambda: False)
        policy = loop.parts.learner.policy
    episodes = Store(run / "episodes").read()
    assert len(episodes) == 24
    for part in (part for episode in episodes for part in episode.segments):
        assert part.support is not None
        assert part.support.holds(part.ids)[part.action].all()
        assert 1 < part.support.counts.max() <= 60
        assert not part.support.counts[~part.action].any()
        text = policy.tokenizer.decode(part.ids[part.action].tolist())
        assert part.forced.any() == ("<tool_call>" in text or grammar == WORDS)
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert len(rows) == 2 and max(row["mismatch/engine/max"] for row in rows) <= 1e-4
    free = sum(int((p.action & ~p.forced).sum()) for e in episodes for p in e.segments)
    assert sum(row["mismatch/engine/count"] for row in rows) == free


def test_a_grammar_that_cannot_be_read_is_refused_before_training(tmp_path):
    recipe = load(write_recipe(tmp_path), ["policy.sampling.grammar=root"])
    with pytest.raises(UserError, match="cannot be read"), compose(recipe, tmp_path):
        pass
