"""What a recipe on a data set must say, and what it must not."""

import pytest

from hexad.contract.faults import UserError
from hexad.recipe.load import load

SET = "{path: rows.jsonl, format: jsonl}"
SFT = ["data.origin=data_set", f"data.demonstrations={SET}"]
DPO = [f"data={{regime: fixed, origin: data_set, rounds: null, pairs: null, preferences: {SET}}}"]
CASES = [
    ("sft", ["data.origin=data_set"], "data.origin"),
    ("sft", [f"data.demonstrations={SET}"], "data.demonstrations"),
    ("sft", [f"data.preferences={SET}", "data.origin=data_set"], "data.preferences"),
    ("sft", [*SFT, "data.demonstrations.split=train"], "data.demonstrations.split"),
    ("sft", ["data.bad_rows=skip"], "data.bad_rows"),
    ("grpo", SFT, "data.demonstrations"),
    ("dpo", [*DPO, "data.pairs={rule: reward_gap, gap: 0.5}"], "data.pairs"),
    ("dpo", [f"data.preferences={SET}"], "data.preferences"),
]


def resolved(tmp_path, method, changes):
    path = tmp_path / "recipe.yaml"
    path.write_text(f"method: {method}\nbudget: {{train_tokens: 1000}}\n")
    return load(path, changes)


@pytest.mark.parametrize(("method", "changes", "key"), CASES)
def test_refused(tmp_path, method, changes, key):
    with pytest.raises(UserError, match=key):
        resolved(tmp_path, method, changes)


@pytest.mark.parametrize(
    ("method", "changes"),
    [
        ("sft", [*SFT, "data.bad_rows=skip", "data.size=9"]),
        ("sft", [*SFT, "data.demonstrations.format=hf", "data.demonstrations.split=train"]),
        ("dpo", DPO),
        ("kto", DPO),
    ],
)
def test_accepted(tmp_path, method, changes):
    assert resolved(tmp_path, method, changes).data.origin == "data_set"
