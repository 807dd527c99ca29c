"""Signs to change direction are told while a run goes on, once each, and stand in its summary."""

import pytest

from hexad.contract.events import TriggerFired
from hexad.evidence import journal
from hexad.evidence.folder import Part
from hexad.evidence.summary import _stage, render
from hexad.evidence.triggers import LONGEST, Watch, concerning, fired
from hexad.recipe.axes import Recipe
from hexad.recipe.load import build
from hexad.recipe.methods import METHODS
from hexad.recipe.read import Document


def recipe(path, method, **axes) -> Recipe:
    tree = {"method": method, "budget": {"train_tokens": 64}, **axes}
    return build(Document(path, tree, {}))


@pytest.fixture
def grpo(tmp_path):
    return recipe(tmp_path / "recipe.yaml", "grpo")


def row(step, signal):
    return {"step": step, "group/signal": signal, "reward/success": 0.3}


def written(folder, signals, start=0):
    rows = [row(step, signal) for step, signal in enumerate(signals, start=start)]
    for each in rows:
        journal.append(folder / journal.METRICS, each)
    return rows


@pytest.mark.parametrize("name", sorted(set(METHODS) - {"dr_grpo"}))
def test_triggers_follow_from_what_the_recipe_is(tmp_path, name):
    named = {"data": {"origin": "runs/x/episodes"}} if name == "awr" else {}
    made = recipe(tmp_path / "recipe.yaml", name, **named)
    keys = {trigger.key for trigger in concerning(made)}
    online = made.data.regime == "online"
    assert ("no-contrast" in keys) == (online and made.critic is None and made.data.group_size > 1)
    assert ("critic-off" in keys) == (made.critic is not None)
    assert ("stale-dropped" in keys) == (made.timing.mode == "asynchronous")
    assert bool(keys) == online


def test_a_sign_is_told_when_it_appears_and_not_again_while_it_holds(tmp_path, grpo):
    seen = []
    watch = Watch(grpo, tmp_path, seen.append)
    for step, signal in enumerate([0.1] * 12 + [0.5] + [0.1] * 10):
        (each,) = written(tmp_path, [signal], start=step)
        watch(each)
    assert [(event.version, event.key) for event in seen] == [
        (9, "no-contrast"),
        (22, "no-contrast"),
    ]
    assert isinstance(seen[0], TriggerFired) and "group/signal" in seen[0].shown


def test_a_resumed_run_goes_on_with_the_rows_that_it_kept(tmp_path, grpo):
    written(tmp_path, [0.1] * 9)
    seen = []
    (tenth,) = written(tmp_path, [0.1], start=9)
    Watch(grpo, tmp_path, seen.append)(tenth)
    assert [event.version for event in seen] == [9]
    (eleventh,) = written(tmp_path, [0.1], start=10)
    Watch(grpo, tmp_path, seen.append)(eleventh)  # resumed in the middle of the stretch
    assert len(seen) == 1


def test_what_is_told_live_is_what_the_summary_finds(tmp_path, grpo):
    seen, rows = [], []
    watch = Watch(grpo, tmp_path, seen.append)
    for step in range(LONGEST * 4):
        (each,) = written(tmp_path, [0.1 if step % 17 else 0.3], start=step)
        rows.append(each)
        watch(each)
    found = fired(grpo, rows)
    assert [sign["step"] for sign in found] == [event.version for event in seen]
    assert [sign["holds"] for sign in found] == [False] * (len(found) - 1) + [True]


def test_the_summary_says_since_when(tmp_path, grpo):
    written(tmp_path, [0.5] * 3 + [0.1] * 10)
    stage = _stage(Part("x", tmp_path, grpo))
    assert [(sign["key"], sign["step"], sign["holds"]) for sign in stage["signs"]] == [
        ("no-contrast", 12, True)
    ]
    summary = {"run": "r", "stages": [stage], "hidden_uses": 0, "not_measured": []}
    texts = [str(part) for part in render(summary).renderables]
    assert any("x: since batch 12: groups have no variance" in text for text in texts)


def test_a_run_without_signs_says_nothing_of_them(tmp_path, grpo):
    written(tmp_path, [0.5] * 13)
    assert "signs" not in _stage(Part("x", tmp_path, grpo))
