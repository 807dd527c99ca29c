"""What the policy visits is compared with the states of the stored episodes that it learns from."""

import json
from contextlib import ExitStack
from dataclasses import replace

from short_run import write_recipe
from test_row_training import logged
from tiny import hexad

from builders import episode
from hexad.contract.ending import Ending, EndingKind
from hexad.contract.store import Store
from hexad.contract.task import Split
from hexad.evidence.visits import Visits, lines
from hexad.policy.local import LocalEngine
from hexad.recipe.load import load
from hexad.rollout.build import policy_of, world_of
from hexad.rollout.demonstrate import record
from hexad.rollout.plan import plan_tasks
from hexad.schedule.pairs import data_states

TASKS = 3


def words(folder):
    return [
        "method=sft",
        "feedback={source: demonstrations}",
        f"data={{regime: fixed, origin: {folder}, groups: {TASKS}}}",
        "task.limits={turns: 6, turn_tokens: 24, context_tokens: 320}",
        "task.selection.count=2",
        "update.minibatches=1",
        f"budget.episodes={TASKS}",
        "run.evaluation={every: null, final: selection}",
    ]


def test_a_run_on_stored_episodes_says_what_its_policy_visits_outside(tmp_path):
    recipe, folder = write_recipe(tmp_path), tmp_path / "episodes"
    made = load(recipe, words(folder))
    policy = policy_of(made)
    with ExitStack() as held:
        world = world_of(made, policy, LocalEngine(policy, rows=4), lambda version: "", held)
        tasks = world.family.tasks(Split.TRAIN, TASKS)
        plans = plan_tasks(tasks, 1, prefix="e", seed=0, environment=world.family.name)
        shown = record(plans, world)
    Store(folder).append(0, shown)
    assert data_states(made) == {state for each in shown for state in each.states}
    code, text = hexad("train", recipe, "--run", tmp_path / "run", *words(folder))
    assert code == 0, text
    for row in logged(tmp_path / "run", "evaluation.jsonl"):
        found = row["states"]
        assert found["episodes"] == 2 and found["outside"] == found["visited"] >= 2
        assert found["known"] == {"episodes": 0, "visited": 0, "outside": 0}
    command = ("evaluate", tmp_path / "run", "--split", "train", "--tasks", str(TASKS), "--json")
    code, text = hexad(*command)
    assert code == 0, text
    found = json.loads(text)["states"]
    assert found["known"]["episodes"] == found["episodes"] == TASKS
    assert found["visited"] - found["outside"] >= TASKS
    report = " ".join(hexad("report", tmp_path / "run")[1].split())
    assert "states outside the data" in report
    assert f"{found['outside']} of {found['visited']} visited" in report


def test_states_are_counted_once_and_faults_and_the_nameless_not_at_all():
    played = [
        episode(0, states=("a", "b", "b")),
        episode(1, states=("a", "x")),
        episode(2, states=("y", "b")),
        episode(3, states=("z",), ending=Ending.of(EndingKind.ENVIRONMENT_ERROR)),
        episode(4),
    ]
    row = Visits(lambda: frozenset("ab"))(Split.SELECTION, (), played)
    known = {"episodes": 2, "visited": 3, "outside": 1}
    assert row == {"states": {"episodes": 3, "visited": 4, "outside": 2, "known": known}}
    assert lines([{"success": 1.0}, row]) == {
        "states outside the data": "2 of 4 visited (2 of 3 episodes begin in it: 1 of 3)"
    }


def test_nothing_is_said_where_one_side_names_no_states():
    played = [episode(0, states=("a",))]
    assert Visits(frozenset)(Split.SELECTION, (), played) == {}
    nameless = [replace(each, states=()) for each in played]
    assert Visits(lambda: frozenset("a"))(Split.SELECTION, (), nameless) == {} == lines([{}])
