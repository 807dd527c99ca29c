"""A guard judges a call as its tool would get it: what is left out is what the default makes it."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest
from calculator_world import make_world

from defaults_family import DONE, Files, TypedFiles
from hexad.contract.faults import UserError
from hexad.contract.messages import AssistantTurn, ToolCall, ToolSchema
from hexad.contract.task import Split
from hexad.environments.permission import Guard
from hexad.environments.registry import family
from hexad.environments.rehearsal import rehearse
from hexad.environments.resolve import resolver
from hexad.policy.load import load_policy
from hexad.recipe.axes import Recipe
from hexad.rollout.demonstrate import record
from hexad.rollout.guarded import guard_of
from hexad.rollout.plan import plan_tasks
from hexad.rollout.relabel import relabelled

EVERY = pytest.mark.parametrize("made", [Files(), TypedFiles()], ids=["schema", "typed"])


def asked(tool, arguments, **more):
    guard = {"forbidden": [{"tool": tool, "arguments": arguments}], **more}
    return Recipe.model_validate({"task": {"guard": guard}})


def refused(guard, tool, more=None, **arguments):
    (task,) = Files().tasks(Split.TRAIN, 1)
    turn = AssistantTurn("", (ToolCall(tool, {**arguments, **(more or {})}),))
    return len(asyncio.run(guard.review(task, 0, turn)).refusals) == 1


@EVERY
def test_an_argument_that_is_left_out_is_its_default(made):
    guard = guard_of(asked("delete", {"force": True}), made)
    assert refused(guard, "delete", path="x") and refused(guard, "delete", path="x", force=True)
    assert not refused(guard, "delete", path="x", force=False)
    assert refused(guard, "delete", force=True, junk=1), "an attempt is judged as it was said"


@EVERY
def test_defaults_inside_an_object_count_and_only_what_is_named_is_compared(made):
    guard = guard_of(asked("wipe", {"how": {"force": True}}), made)
    assert refused(guard, "wipe") and refused(guard, "wipe", how={"depth": 1})
    assert not refused(guard, "wipe", how={"force": False})
    assert refused(guard_of(asked("wipe", {"mode": "hard"}), made), "wipe", how={})


def test_what_the_check_of_a_tool_makes_of_a_value_is_compared():
    guard = guard_of(asked("wipe", {"name": "disk"}), TypedFiles())
    assert refused(guard, "wipe", {"name": "DISK"}) and not refused(guard, "wipe", {"name": "Tape"})


@EVERY
def test_a_rule_sees_what_the_tool_would_get(made, monkeypatch):
    seen = []
    guard = replace(
        Guard(rule=lambda task, call: seen.append(call.arguments)), resolve=resolver(made)
    )
    refused(guard, "delete", path="x")
    assert seen == [{"path": "x", "force": True}]


@EVERY
def test_nothing_is_executed_in_an_episode(made):
    guard = guard_of(asked("delete", {"force": True}), made)
    (task,) = made.tasks(Split.TRAIN, 1)
    DONE.clear()
    forced = AssistantTurn("", (ToolCall("delete", {"path": "x"}),))
    shown = made.demonstration(task)
    world = replace(make_world(load_policy("builtin:tiny", seed=0)), family=made, feedback=None)
    world = replace(world, chat=load_policy("builtin:tiny", seed=0).chat(made.tools), guard=guard)
    made.demonstration = lambda task: replace(shown, turns=(forced, shown.turns[-1]))
    try:
        (episode,) = record(plan_tasks([task], 1, prefix="g", seed=0, environment="files"), world)
    finally:
        del made.demonstration
    assert DONE == [] and episode.violations == 1
    assert all(row["kept"] for row in rehearse(made, task, guard, 4)["scripts"])


def test_a_forbidden_argument_must_be_one_that_a_call_has():
    with pytest.raises(UserError, match="no argument 'forse'") as caught:
        guard_of(asked("delete", {"forse": True}), Files())
    assert "force" in str(caught.value)


def test_an_argument_without_a_stated_default_cannot_be_forbidden_by_its_value():
    class Vague(Files):
        tools = (ToolSchema("rm", "", {"properties": {"force": {"type": "boolean"}}}),)

    with pytest.raises(UserError, match="may leave out force"):
        guard_of(asked("rm", {"force": True}), Vague())
    assert refused(guard_of(asked("rm", {}), Vague()), "rm")


def test_references_choices_and_lists_of_a_schema_are_followed():
    schema = {
        "$defs": {"How": {"properties": {"force": {"default": True}}}},
        "properties": {
            "one": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/How"}], "default": {}},
            "many": {"items": {"allOf": [{"$ref": "#/$defs/How"}]}},
            "bare": {"type": "string"},
        },
    }
    made = type("Made", (Files,), {"tools": (ToolSchema("t", "", schema),)})()
    found = resolver(made)(ToolCall("t", {"many": [{}, {"force": False}]}))
    want = {"one": {"force": True}, "many": [{"force": True}, {"force": False}]}
    assert found.arguments == want
    assert resolver(made)(ToolCall("other", {"a": 1})).arguments == {"a": 1}


def test_the_expert_teaches_nothing_that_is_forbidden():
    """Neither by its demonstrations nor by its labels of visited states."""
    policy = load_policy("builtin:tiny", seed=0)
    made = family("calculator", {"operations": {2: 1.0}})
    guard = guard_of(asked("calculate", {"op": "*"}), made)
    world = replace(make_world(policy), family=made)
    tasks = [t for t in made.tasks(Split.TRAIN, 12) if "*" in t.data["expression"]]
    plans = plan_tasks(tasks, 1, prefix="g", seed=0, environment="calculator")
    free = record(plans, world)
    held = record(plans, replace(world, guard=guard))
    assert tasks and sum(e.violations for e in held) >= len(tasks)
    for episode, seen, task in zip(held, free, tasks, strict=True):
        (row,) = episode.segments
        refusals = {r.turn for r in episode.refusals}
        assert set(row.turn[row.action & (row.weight == 0)].tolist()) == refusals
        labels = relabelled(seen, task, made, replace(world, guard=guard))
        told = np.concatenate([s.ids[s.action] for s in labels.episode.segments])
        assert "*" not in policy.tokenizer.decode(told.tolist())
