"""VinePPO's values in the real loop: continuations are auxiliary and repeatable."""

import json

from hexad.recipe.load import load
from hexad.run import compose

RECIPE = """
method: reinforce
credit: {estimator: vine, clock: turn, continuations: 2, truncation: score}
data: {groups: 3, group_size: 1}
update: {minibatches: 1}
task: {limits: {turns: 2, turn_tokens: 6, context_tokens: 200}}
budget: {episodes: 6}
run: {evaluation: {every: null, final: none}, checkpoints: {every: null}}
"""


def run(folder):
    folder.mkdir()
    path = folder / "recipe.yaml"
    path.write_text(RECIPE)
    with compose(load(path), folder / "run") as loop:
        loop.run()
    books = json.loads((folder / "run" / "ledger.jsonl").read_text().splitlines()[-1])
    return books, loop.parts.learner.lineage


def test_continuations_are_booked_as_auxiliary_and_repeat(tmp_path):
    (first, lineage), (second, again) = run(tmp_path / "a"), run(tmp_path / "b")
    assert first["consumed"]["episodes"] == 6
    turns = first["auxiliary"]["continuation"]["episodes"]
    assert turns >= 12 and turns % 2 == 0  # two a turn
    booked = first["books"]["auxiliary"]["continuation"]
    assert booked == first["auxiliary"]["continuation"]["sampled_tokens"]
    assert first["auxiliary"] == second["auxiliary"] and lineage == again
