"""Signs to change direction are told while a run goes on, once each, and stand in its summary."""

import pytest

from hexad.contract.events import Evaluated, TriggerFired
from hexad.evidence import journal
from hexad.evidence.folder import Part
from hexad.evidence.intervals import wilson
from hexad.evidence.summary import _stage, render
from hexad.evidence.triggers import LONGEST, Watch, _successes, concerning, fired
from hexad.recipe.axes import Recipe
from hexad.recipe.load import build
from hexad.recipe.methods import METHODS
from hexad.recipe.read import Document
from hexad.view.facts import Facts


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
    online, samples = made.data.regime == "online", made.data.regime != "fixed"
    assert ("no-contrast" in keys) == (online and made.critic is None and made.data.group_size > 1)
    assert ("critic-off" in keys) == (made.critic is not None)
    assert ("stale-dropped" in keys) == (made.timing.mode == "asynchronous")
    assert ("process-hacked" in keys) == ("verifier-hole" in keys) == samples
    assert ("closed-loop-errors" in keys) == (name in ("sft", "dagger"))
    assert ("outside-the-data" in keys) == (made.feedback.source == "preferences")
    assert bool(keys) == (name != "awr")  # stored episodes that nobody's preference orders


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


def evaluated(folder, step, success, **more):
    """An evaluation of 200 selection tasks is written, and told as the run tells it."""
    low, high = wilson(round(200 * success), 200)
    told = {"step": step, "split": "selection", "success": success, "scored": 200, "episodes": 200}
    told |= {"correct": round(200 * success), "low": low, "high": high, **more}
    journal.append(folder / journal.EVALUATIONS, told)
    return Evaluated(step, "selection", 200, 200, success, low, high)


def test_a_hole_in_the_verifier_is_told_at_the_evaluation_that_shows_it(tmp_path, grpo):
    seen, rows = [], []
    watch = Watch(grpo, tmp_path, seen.append)
    held = {10: 0.5, 20: 0.6, 30: 0.6, 40: 0.5, 50: 0.4, 60: 0.3}
    for step in range(60):
        each = {"step": step, "group/signal": 0.5, "reward/success": 0.5 + step / 150}
        journal.append(tmp_path / journal.METRICS, each)
        rows.append(each)
        watch(each)
        if step + 1 in held:
            watch.heard(evaluated(tmp_path, step + 1, held[step + 1]))
    assert [(event.key, event.version) for event in seen] == [("verifier-hole", 40)]
    part = Part("x", tmp_path, grpo)
    (sign,) = fired(grpo, rows, part.on("selection"))
    assert (sign["key"], sign["holds"]) == ("verifier-hole", True) and sign["step"] <= 60
    assert fired(grpo, rows) == []
    assert [each["key"] for each in _stage(part)["signs"]] == ["verifier-hole"]
    assert [each["key"] for each in Facts(part).signs] == ["verifier-hole"]


@pytest.mark.parametrize(
    ("success", "loss", "told"),
    [
        # exp(-.01 x 30) = .741; of 200 the 95 % interval ends at .722 for .66, at .759 for .70
        ((0.66, 0.66), 0.01, [20]),
        ((0.7, 0.66), 0.01, []),
        ((0.66, 0.7), 0.01, []),
        ((0.66, 0.66), 0.02, []),  # exp(-.6) = .549
        ((0.3, 0.3), None, []),
    ],
)
def test_errors_add_up_where_success_is_below_what_the_tokens_alone_would_give(
    tmp_path, success, loss, told
):
    sft, seen = recipe(tmp_path / "recipe.yaml", "sft"), []
    watch, rows = Watch(sft, tmp_path, seen.append), []
    for step in range(20):
        each = {"step": step, "policy/loss": 0.01, "length/action_tokens/mean": 30.0}
        journal.append(tmp_path / journal.METRICS, each)
        rows.append(each)
        watch(each)
        if step % 10 == 9:
            of = {} if loss is None else {"token_loss": {"mean": loss, "of": "expert"}}
            watch.heard(evaluated(tmp_path, step + 1, success[step // 10], imitation=of))
    assert [event.version for event in seen] == told
    signs = fired(sft, rows, Part("x", tmp_path, sft).on("selection"))
    assert [(sign["key"], sign["step"]) for sign in signs] == (
        [("closed-loop-errors", 10)] if told else []
    )


def test_rounds_are_read_where_they_sample_and_nowhere_else(tmp_path):
    dpo, seen = recipe(tmp_path / "recipe.yaml", "dpo"), []
    watch, rows = Watch(dpo, tmp_path, seen.append), []
    for step in range(60):
        up = {"reward/component/steps": 0.1 * step, "reward/success": 0.6 - step / 100}
        sampled = {**up, "data/states_outside": 0.9 if step == 9 else 0.4}
        each = {"step": step, "policy/loss": 0.5, **(sampled if step % 3 == 0 else {})}
        journal.append(tmp_path / journal.METRICS, each)
        rows.append(each)
        watch(each)
    told = [("outside-the-data", 9), ("process-hacked", 57)]  # the twentieth row that samples
    assert [(event.key, event.version) for event in seen] == told
    found = fired(dpo, rows)
    assert [(sign["key"], sign["step"]) for sign in found] == told
    assert [sign["holds"] for sign in found] == [False, True]
    ranked = {"step": 60, "split": "selection", "success": 0.1, "measure": "pairs"}
    assert _successes([ranked]) == []


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
