"""ReMax in the real loop: greedy rollouts are auxiliary, repeatable, and never trained on."""

import json

from hexad.recipe.load import load
from hexad.run import compose

RECIPE = """
method: reinforce
credit: {baseline: greedy}
data: {groups: 4, group_size: 2}
update: {minibatches: 2}
task: {limits: {turns: 2, turn_tokens: 6, context_tokens: 200}}
budget: {episodes: 16}
run: {evaluation: {every: null, final: none}, checkpoints: {every: null}}
"""


def run(folder):
    path = folder / "recipe.yaml"
    path.write_text(RECIPE)
    seen = []
    with compose(load(path), folder / "run") as loop:
        emit = loop.emit
        loop.emit = lambda event: (seen.append(event), emit(event))
        loop.run()
    books = json.loads((folder / "run" / "ledger.jsonl").read_text().splitlines()[-1])
    return books, loop.parts.learner.lineage


def test_greedy_rollouts_are_booked_as_auxiliary_and_repeat(tmp_path):
    folders = [tmp_path / name for name in ("a", "b")]
    for folder in folders:
        folder.mkdir()
    (first, lineage), (second, again) = (run(folder) for folder in folders)
    assert first["auxiliary"]["greedy"]["episodes"] == 8  # one a task, two batches of four
    assert first["consumed"]["episodes"] == 16
    assert first["books"]["auxiliary"]["greedy"] == first["auxiliary"]["greedy"]["sampled_tokens"]
    assert first["auxiliary"] == second["auxiliary"] and lineage == again
