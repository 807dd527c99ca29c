"""A held-out loss is of prompts that nobody is trained on, from the command line to the report."""

import json
import shutil
from contextlib import ExitStack

import pytest
from short_run import write_recipe
from test_row_training import calculator_rows, logged, write
from tiny import hexad

from hexad.contract.faults import UserError
from hexad.contract.store import Store
from hexad.contract.task import Split
from hexad.policy.local import LocalEngine
from hexad.recipe.load import load
from hexad.rollout.build import policy_of, world_of
from hexad.rollout.demonstrate import record
from hexad.rollout.dialogues import Chats
from hexad.rollout.plan import plan_tasks
from hexad.schedule.held_rows import held_out

EVALUATED = "run.evaluation={every: null, final: selection}"
FEW = "task.selection.count=2"


def train(tmp_path, held, *words, train_rows=None):
    """A run on ten rows beside ``held``, a file or rows of one."""
    recipe = write(tmp_path, train_rows or calculator_rows(10), "sft", "demonstrations", episodes=8)
    if not isinstance(held, str):
        (tmp_path / "held.jsonl").write_text("".join(json.dumps(row) + "\n" for row in held))
        held = str(tmp_path / "held.jsonl")
    spec = f"data.held_out={{path: {held}, format: jsonl}}"
    code, text = hexad("train", recipe, "--run", tmp_path / "run", spec, EVALUATED, FEW, *words)
    return code, " ".join(text.split())


@pytest.mark.parametrize("copied", [False, True])
def test_the_training_rows_cannot_be_held_out(tmp_path, copied):
    path = tmp_path / "rows.jsonl"
    write(tmp_path, calculator_rows(10), "sft", "demonstrations")
    if copied:
        shutil.copy(path, path := tmp_path / "copy.jsonl")
    code, text = train(tmp_path, str(path))
    assert code == 2 and "the held-out rows are the training rows" in text
    assert "data.held_out.path" in text


def other(row):
    """Another answer to the same prompt, with other tools."""
    return {"messages": [row["messages"][0], {"role": "assistant", "content": "7"}]}


def test_a_prompt_that_is_trained_on_stops_the_run(tmp_path):
    rows = calculator_rows(14)
    code, text = train(tmp_path, [*rows[10:], other(rows[3])], "data.bad_rows=stop")
    assert code == 2 and "1 of 5 rows are bad" in text
    assert "row 5: in_training: its prompt is that of training row 4" in text


def test_or_is_dropped_and_counted(tmp_path):
    rows = calculator_rows(14)
    code, text = train(tmp_path, [*rows[10:], other(rows[3])], "data.bad_rows=skip")
    assert code == 0, text
    (dropped,) = logged(tmp_path / "run", "bad_held_out.jsonl")
    assert (dropped["row"], dropped["flaw"]) == (5, "in_training")
    last = logged(tmp_path / "run", "evaluation.jsonl")[-1]["imitation"]["token_loss"]
    assert last["of"] == "held_out" and last["dropped"] == {"in_training": 1}
    assert "1 rows dropped: in_training" in " ".join(hexad("report", tmp_path / "run")[1].split())
    code, text = hexad("evaluate", tmp_path / "run", "--split", "selection", "--tasks", "2")
    assert code == 0, text


def test_rows_of_other_prompts_are_all_read(tmp_path):
    code, text = train(tmp_path, calculator_rows(14)[10:])
    assert code == 0, text
    last = logged(tmp_path / "run", "evaluation.jsonl")[-1]["imitation"]["token_loss"]
    assert last["of"] == "held_out" and "dropped" not in last
    assert not (tmp_path / "run" / "bad_held_out.jsonl").exists()


def test_nothing_but_trained_prompts_is_nothing_held_out(tmp_path):
    rows = calculator_rows(3)
    words = ("data.bad_rows=skip",)
    code, text = train(tmp_path, [other(row) for row in rows], *words, train_rows=rows)
    assert code == 2 and "none of 3 rows can be used" in text and "in_training" in text


def test_prompts_of_stored_episodes_are_not_held_out_either(tmp_path):
    rows = tmp_path / "held.jsonl"
    rows.write_text("".join(json.dumps(row) + "\n" for row in calculator_rows(5)))
    words = [
        "method=sft",
        "feedback={source: demonstrations}",
        f"data={{regime: fixed, origin: {tmp_path / 'episodes'}, groups: 2, bad_rows: skip}}",
        f"data.held_out={{path: {rows}, format: jsonl}}",
        "task.limits={turns: 6, turn_tokens: 24, context_tokens: 320}",
    ]
    recipe = load(write_recipe(tmp_path), words)
    policy = policy_of(recipe)
    with ExitStack() as held:
        world = world_of(recipe, policy, LocalEngine(policy, rows=4), lambda version: "", held)
        tasks = world.family.tasks(Split.TRAIN, 3)
        plans = plan_tasks(tasks, 1, prefix="e", seed=0, environment=world.family.name)
        Store(tmp_path / "episodes").append(0, record(plans, world))
        found = held_out(recipe, world, Chats(policy.chat), tmp_path)
        assert [each.row for each in found.dropped] == [1, 2, 3] and len(found.items) == 2
        assert "the stored episode e" in found.dropped[0].detail
        stopped = recipe.model_copy(
            update={"data": recipe.data.model_copy(update={"bad_rows": "stop"})}
        )
        with pytest.raises(UserError, match="3 of 5 rows are bad"):
            held_out(stopped, world, Chats(policy.chat), tmp_path)
