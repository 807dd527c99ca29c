import json

import numpy as np
import pytest

from hexad.contract.faults import UserError
from hexad.environments.latency import Latency
from hexad.evidence import annotate, profiles
from hexad.evidence.barrier import Path, Turn
from hexad.evidence.costs import Cost, step_costs
from hexad.evidence.summary import render, summarize
from hexad.preflight import path_of
from hexad.recipe.dump import write
from hexad.recipe.load import load
from hexad.rollout.collect import collect
from toyworld import toy_plans, toy_world

GRPO = "method: grpo\nbudget: {episodes: 64}\n"
ASYNC = (
    "timing={mode: asynchronous, max_lag: 2}",
    "update.correction={ratio: proximal, rule: tis, high: 2.0}",
)


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.yaml").write_text(GRPO)
    return lambda *overrides: load(tmp_path / "r.yaml", list(overrides))


def test_the_key_is_task_policy_data_and_a_named_verifier_and_nothing_else(recipe):
    same = {profiles.key(recipe(*o)) for o in ((), ("update.optimizer.lr=1e-5",), ("run.seed=3",))}
    assert same == {profiles.key(recipe(*ASYNC))}
    named = "feedback.verifier=answer-hackable"
    assert profiles.key(recipe(named)) != profiles.key(recipe(named, "feedback.options={x: 1}"))
    others = [
        recipe(named),
        recipe("task.latency={kind: constant, mean: 0.1}"),
        recipe("policy.model=builtin:small"),
        recipe("data.groups=8"),
    ]
    assert len(same | {profiles.key(other) for other in others}) == 5


def test_the_lineage_of_a_policy_is_read_from_the_recipes_of_its_runs(recipe, tmp_path):
    assert profiles.subject(recipe())["lineage"] == ["builtin:tiny"]
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
    (second / "recipe.yaml").write_text(f"{GRPO}policy: {{model: {first}}}\n")
    stage = "{name: a, recipe: {method: grpo, budget: {episodes: 64}}}"
    (first / "recipe.yaml").write_text(f"name: x\nstages: [{stage}]\n")
    found = [str(second), str(first), "builtin:tiny"]
    assert profiles.lineage(str(second)) == found
    assert profiles.lineage(str(first / "a")) == [str(first / "a"), "builtin:tiny"]
    (first / "recipe.yaml").write_text(f"{GRPO}policy: {{model: {second}}}\n")
    assert profiles.lineage(str(second)) == found[:2]  # a circle ends


def test_a_profile_is_found_in_the_run_or_in_its_default_place(recipe, tmp_path):
    one, other = recipe(), recipe("data.groups=8")
    run = tmp_path / "run"
    assert not profiles.known(one, run)
    profiles.write({"key": profiles.key(one)}, profiles.place(one, None))
    assert profiles.known(one, run) and not profiles.known(other, run)
    profiles.write({"key": profiles.key(one)}, profiles.place(one, run))
    assert not profiles.known(other, run)
    profiles.write({"key": profiles.key(other)}, profiles.place(other, run))
    assert profiles.known(other, run)
    profiles.place(one, None).write_text("{")
    assert not profiles.known(one, run)
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="this is a file"):
        profiles.write({}, tmp_path / "file" / "check.json")


def rendered(summary):
    return "\n".join(str(note) for note in render(summary).renderables)


def test_the_summary_says_that_asynchronous_training_was_not_measured_before(recipe, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    write(recipe(*ASYNC), run / "recipe.yaml")
    before = summarize(run)
    assert before["stages"][0]["unprofiled"] and "barrier profile" in before["not_measured"]
    assert "asynchronous without a measured barrier profile" in rendered(before)
    profiles.write({"key": profiles.key(recipe())}, profiles.place(recipe(), None))
    after = summarize(run)
    assert "unprofiled" not in after["stages"][0] and "barrier profile" not in after["not_measured"]
    assert "asynchronous without" not in rendered(after)
    profiles.place(recipe(), None).unlink()
    write(recipe(), run / "recipe.yaml")
    synchronous = summarize(run)
    assert "unprofiled" not in synchronous["stages"][0]
    assert "barrier profile" in synchronous["not_measured"]


def test_the_cost_of_a_step_and_of_a_row_are_told_apart():
    # 0.002 s a step and 0.0005 s a token: alone 100 tokens, then 400 in company of 8.
    alone, batch = Cost(0.25, 100, 1.0), Cost(50 * 0.002 + 400 * 0.0005, 400, 8.0)
    assert step_costs(alone, batch) == pytest.approx((0.002, 0.0005))
    assert step_costs(alone, Cost(0.3, 100, 1.0)) == pytest.approx((0.003, 0.0))
    faster = step_costs(Cost(0.25, 100, 1.0), Cost(0.1, 400, 8.0))  # less than a step each
    assert faster == pytest.approx((0.002, 0.0))
    dearer = step_costs(Cost(0.01, 100, 1.0), Cost(4.0, 400, 8.0))
    assert dearer == pytest.approx((0.0, 0.01))


@pytest.fixture(scope="module")
def episode():
    """The one with most turns of a few."""
    return annotate.chosen(collect(toy_plans(6), toy_world()))


def test_a_path_has_the_tokens_and_the_seconds_of_each_turn(episode):
    assert episode.costs.turns > 2
    counts = np.bincount(episode.segments[0].turn[episode.segments[0].action])
    seconds = {(episode.seed, 0): 0.5, (episode.seed, 1): 0.25, (episode.seed + 1, 1): 9.0}
    path = path_of(episode, seconds)
    assert path == Path(
        0.5, tuple(Turn(int(n), 0.25 if i == 0 else 0.0) for i, n in enumerate(counts))
    )
    assert path.tokens == episode.action_count > 0
    slow = Latency("constant", 0.2, splits=(episode.split,))
    drawn = path_of(episode, seconds, slow)  # only what was called waited, and resets do not
    assert [turn.drawn for turn in drawn.turns] == [0.2] + [0.0] * (len(counts) - 1)
    assert drawn.drawn == 0.0 and drawn.waits == path.waits


def test_an_annotated_episode_accounts_for_every_token(episode):
    document = annotate.annotate(episode, lambda ids: f"<{len(ids)}>")
    segment = episode.segments[0]
    assert sum(row["tokens"] for row in document["spans"]) == len(segment)
    assert sum(row["sampled"] for row in document["spans"]) == segment.action_count
    assert sum(row["trained"] for row in document["spans"]) == (segment.weight > 0).sum()
    said = sum(row.get("logprob", 0.0) for row in document["spans"])
    assert said == pytest.approx(float(segment.logprob[segment.action].sum()))
    assert document["spans"][0]["text"] == f"<{document['spans'][0]['tokens']}>"
    json.dumps(document)
    assert annotate.table(document).row_count == len(segment.spans)
    assert annotate.chosen([]) is None and annotate.chosen([episode]) is episode
