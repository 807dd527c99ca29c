"""A reward model from end to end: trained on pairs, measured on other tasks, then a verifier."""

import json

import pytest
from test_preference_run import RECIPE as PAIRS

from hexad.contract.faults import UserError
from hexad.contract.store import Store
from hexad.contract.task import Split
from hexad.evidence import profiles, qualify
from hexad.learner import checkpoint
from hexad.recipe.axes import QualifySpec
from hexad.recipe.dump import write
from hexad.recipe.load import load
from hexad.run import evaluate, train

REWARD = PAIRS.replace(", reference: round_start", "").replace("dpo", "reward_model")
USE = """
name: rewarded
method: rloo
task:
  environment: calculator
  limits: {turns: 3, turn_tokens: 8, context_tokens: 160}
policy: {model: "builtin:tiny", sampling: {grammar: "start: /[0-9][0-9]?[0-9]?/"}}
feedback:
  verifier: reward_model
  options: {path: "RUN", threshold: 0.0}
  mapping: score
data: {groups: 2, group_size: 3}
budget: {episodes: 12}
run: {evaluation: {every: null, final: none}}
system: {threads: 1, tool_workers: 1}
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reward")
    (folder / "reward.yaml").write_text(REWARD)
    train(load(folder / "reward.yaml"), folder / "run")
    write(load(folder / "reward.yaml"), folder / "run" / "recipe.yaml")
    return folder / "run"


def rows(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_model_learns_and_the_policy_does_not(trained):
    metrics = rows(trained / "metrics.jsonl")
    assert metrics[0]["policy/loss/max"] == pytest.approx(0.693147, abs=1e-5)
    assert metrics[-1]["policy/loss/mean"] < metrics[0]["policy/loss/mean"]
    measured = rows(trained / "evaluation.jsonl")
    assert {row["measure"] for row in measured} == {"pairs"}
    newest = checkpoint.newest(trained).path
    assert {p.name for p in newest.iterdir()} == {"policy", "reward", "state", "manifest.json"}
    facts = json.loads((newest / "reward" / "reward_model.json").read_text())
    assert facts["measured"]["step"] == measured[-1]["step"]
    episodes = Store(trained / "episodes").read()
    assert len({digest for e in episodes for _, digest in e.provenance.versions}) == 1


def test_it_is_evaluated_by_pairs_and_repeats_itself(trained):
    first, again = (evaluate(trained, Split.SELECTION, tasks=6) for _ in range(2))
    assert first["measure"] == "pairs" and first["scored"] > 0
    assert {**first, "time": 0} == {**again, "time": 0}


def test_another_recipe_is_trained_on_it_and_refused_below_its_threshold(trained, tmp_path):
    path = tmp_path / "use.yaml"
    path.write_text(USE.replace("RUN", str(trained)))
    train(load(path), tmp_path / "use")
    metrics = rows(tmp_path / "use" / "metrics.jsonl")
    assert len(metrics) == 2 and all(0 < row["reward/score"] < 1 for row in metrics)
    card = json.loads((tmp_path / "use" / "verifiers.json").read_text())["training"]
    assert card["card"]["name"] == "reward_model" and card["mapping"] == "score/1"
    recipe = load(path)
    asked = recipe.feedback.model_copy(update={"qualify": QualifySpec(agreement=0.9)})
    recipe = recipe.model_copy(update={"feedback": asked})
    found = {"verifiers": {"training": {"digest": card["digest"]}}}
    found["qualification"] = {"agreement": {"share": 0.6}}
    (tmp_path / "use" / profiles.FILE).write_text(json.dumps(found))
    with pytest.raises(UserError, match=r"agrees .* on 60.0% of the cases, and 90.0% is asked"):
        qualify.require(recipe, tmp_path / "use", card["digest"])
