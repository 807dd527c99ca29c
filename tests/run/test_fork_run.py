"""A round with forks on the calculator, through the command: its books, and a kill."""

import json
import signal

import pytest
from short_run import facts, start
from tiny import hexad

from hexad.contract.store import Store

GRAMMAR = r"""
start: call | /[12][0-9]?/
call: <[3]> "\n{\"name\": \"calculate\", \"arguments\": " arguments "}\n" <[4]>
arguments: "{\"a\": " /[1-9]/ ", \"op\": \"+\", \"b\": 2}"
"""
"""One call in three, so that an untrained policy takes several turns."""
RECIPE = """
name: forks
method: dpo
task:
  environment: calculator
  limits: {turns: 3, turn_tokens: 80, context_tokens: 480}
policy: {model: "builtin:tiny", sampling: {grammar: GRAMMAR}}
feedback: {mapping: "dense:DenseMapping"}
data:
  groups: 2
  group_size: 3
  rounds: {tasks: 4, passes: 1, rounds: 2, reference: round_start, forks: 2}
  pairs: {rule: branch, gap: 0.05}
update:
  minibatches: 1
  optimizer: {lr: 1e-4}
budget: {train_tokens: 1000000}
run:
  seed: 5
  evaluation: {every: 4, tasks: 2, final: none}
  checkpoints: {every: 1, keep: 4}
system: {engine_rows: 12, threads: 1}
"""


def write_recipe(folder):
    path = folder / "forks.yaml"
    path.write_text(RECIPE.replace("GRAMMAR", json.dumps(GRAMMAR)))
    return path


def audits(run):
    return [json.loads(line) for line in (run / "pairs.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("forks")
    code, output = hexad("train", write_recipe(folder), "--run", folder / "run")
    assert code == 0, output
    return folder / "run"


def test_pairs_deeper_than_the_first_turn_exist_and_every_token_is_booked_once(whole):
    rows = audits(whole)
    assert [row["round"] for row in rows] == [0, 1]
    assert all(sum(row["branches"].values()) > row["first_turn"] for row in rows)
    episodes = Store(whole / "episodes").read()
    forks = [e for e in episodes if e.prefix is not None]
    assert len(forks) == sum(row["forks"]["played"] for row in rows) > 0
    assert all(e.costs.sampled_tokens == e.own_count for e in episodes)
    assert all(e.own_count < e.action_count for e in forks)
    ledger = json.loads((whole / "ledger.jsonl").read_text().splitlines()[-1])
    books, used = ledger["books"], ledger["consumed"]
    own = sum(e.own_count for e in episodes)
    assert books["generated"] - books["auxiliary"]["evaluation"] == used["rollout_tokens"] == own
    assert books["trained"] + books["dropped"]["unused"] == own and books["pending"] == 0
    assert used["episodes"] == len(episodes) == 2 * 4 * 3 + len(forks)


def test_a_fork_is_the_first_turns_of_its_parent_and_then_its_own(whole):
    episodes = {e.episode_id: e for e in Store(whole / "episodes").read()}
    for fork in episodes.values():
        if fork.prefix is None:
            continue
        (row,), (parent,) = fork.segments, episodes[fork.prefix.of].segments
        shared = int((row.action & (row.turn >= fork.prefix.turns)).argmax())
        for name in ("ids", "action", "logprob", "version", "turn"):
            mine, theirs = getattr(row, name)[:shared], getattr(parent, name)[:shared]
            assert mine.tobytes() == theirs.tobytes(), name
        assert not row.weight[:shared].any() and fork.states[: fork.prefix.turns + 1]


def test_a_kill_changes_nothing(whole, tmp_path):
    recipe, run = write_recipe(tmp_path), tmp_path / "run"
    killed = start(recipe, run, HEXAD_CRASH_AT="loop:after-update:2")
    output, _ = killed.communicate(timeout=240)
    assert killed.returncode == -signal.SIGKILL, output
    code, output = hexad("train", recipe, "--resume", "--run", run)
    assert code == 0, output
    found, expected = facts(run), facts(whole)
    for name in expected:
        assert found[name] == expected[name], f"{name} differs"
    assert audits(run) == audits(whole)


def test_rounds_and_their_forks_are_played_again_and_diagnosed(whole):
    """``hexad verify`` repeats a fork's whole conversation, the turns of its parent included."""
    code, output = hexad("verify", whole, "--episodes", 64, "--json")
    found = json.loads(output.splitlines()[-1])
    assert (code, found["reproduced"], found["differs"]) == (0, True, []), output
    kept = {int(path.name.split("_")[1]) for path in (whole / "checkpoints").iterdir()}
    episodes = [e for e in Store(whole / "episodes").read() if e.provenance.versions[0][0] in kept]
    assert any(e.prefix is not None for e in episodes), "a fork is among those that are played"
    assert found["episodes"] == found["logprob"]["episodes"] == len(episodes)
    code, output = hexad("diagnose", whole, "--json")
    (stage,) = json.loads(output.splitlines()[-1])["stages"]
    assert code == 0 and stage["facts"]["quadrants"]["high-hit"] >= 0
    assert "longest_quarter" not in stage["facts"], "the loss is of pairs"
    assert [f["key"] for f in stage["findings"]] == []
