import asyncio
import json

import pytest

from hexad.contract.ending import EndingKind
from hexad.contract.faults import ContractViolation, ToolFault
from hexad.contract.messages import AssistantTurn, Role, ToolCall
from hexad.contract.task import Split, Task
from hexad.environments.calculator import CalculatorFamily
from hexad.environments.calculator_hard import HardCalculatorFamily
from hexad.environments.conversation import ToolConversation
from hexad.environments.expression import BOUND
from hexad.environments.protocol import Environment, Forkable, Repeatable, TaskFamily
from hexad.environments.toolbox import ToolBox
from hexad.environments.tools import Effect, tool

FAMILIES = [CalculatorFamily, HardCalculatorFamily]
TASK = Task("calculator:3+4*2", Split.TRAIN, {"expression": "3+4*2", "answer": 14})


def turn(*calls, content=""):
    return AssistantTurn(content, tuple(ToolCall("calculate", arguments) for arguments in calls))


def play(family, task, turns):
    async def episode():
        world = family.make()
        start = await world.reset(task, 0)
        steps = [await world.step(said) for said in turns]
        await world.close()
        await world.close()
        return start, steps

    return asyncio.run(episode())


def observe(family, *calls):
    """Contents of the tool messages that answer ``calls``, all of one turn."""
    _, [step] = play(family, TASK, [AssistantTurn("", calls)])
    return [message.content for message in step.messages]


@pytest.mark.parametrize("family", FAMILIES)
def test_demonstrations_reach_the_stored_answer_by_the_environments_own_results(family):
    made = family()
    assert isinstance(made, TaskFamily)
    for split in Split:
        for task in made.tasks(split, 40):
            shown = made.demonstration(task)
            start, steps = play(made, task, shown.turns)
            assert [m.content for m in start.messages] == [task.data["expression"]]
            assert len(shown.turns) == task.data["operations"] + 1
            assert steps[-1].ending.kind is EndingKind.TERMINAL
            assert steps[-1].ending.terminated and not steps[-1].ending.truncated
            assert all(step.ending is None for step in steps[:-1])
            assert sum(step.tool_calls for step in steps) == task.data["operations"]
            assert shown.turns[-1].content == str(task.data["answer"])
            assert steps[-2].messages[-1].content == str(task.data["answer"])


def test_the_worked_example_of_the_readme():
    family = CalculatorFamily()
    start, steps = play(family, TASK, family.demonstration(TASK).turns)
    assert start.messages[0].role is Role.USER and start.tools == family.tools
    contents = [[(m.role, m.content, m.name) for m in step.messages] for step in steps]
    assert contents == [[(Role.TOOL, "7", "calculate")], [(Role.TOOL, "14", "calculate")], []]


def test_hard_demonstrations_follow_precedence():
    task = Task("calculator-hard:3+4*2", Split.TRAIN, {"expression": "3+4*2"})
    turns = HardCalculatorFamily().demonstration(task).turns
    assert dict(turns[0].tool_calls[0].arguments) == {"a": 4, "op": "*", "b": 2}
    assert turns[-1].content == "11"


def test_the_answer_is_never_shown():
    hidden = Task("t", Split.TRAIN, {"expression": "3+4", "answer": 987654})
    start, steps = play(CalculatorFamily(), hidden, [turn({"a": 1}), turn(content="7")])
    assert "987654" not in repr((start, steps))


def test_several_calls_of_one_turn_are_executed_in_order():
    calls = [{"a": 3, "op": "+", "b": 4}, {"a": 1, "op": "/", "b": 1}, {"a": 7, "op": "*", "b": 2}]
    _, [step] = play(CalculatorFamily(), TASK, [turn(*calls, content="thinking")])
    assert [m.content for m in step.messages] == ["7", "error: op must be one of + - *", "14"]
    assert all(m.role is Role.TOOL for m in step.messages)
    assert step.ending is None and step.tool_calls == 3


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ({"a": True, "op": "+", "b": 1}, "a: "),
        ({"a": 1.0, "op": "+", "b": 1}, "a: "),
        ({"a": "1", "op": "+", "b": 1}, "a: "),
        ({"a": BOUND + 1, "op": "+", "b": 1}, "numbers must be within 1000000000"),
        ({"a": 1, "op": "*", "b": -(10**400)}, "numbers must be within"),
        ({"a": BOUND, "op": "*", "b": BOUND}, "the result is beyond"),
        ({"a": 1, "op": "**", "b": 1}, "op must be one of + - *"),
        ({"a": 1, "op": "", "b": 1}, "op must be one of + - *"),
        ({"a": 1, "op": "+-", "b": 1}, "op must be one of + - *"),
        ({"a": 1, "op": "+"}, "b is missing. fields: a, op, b"),
        ({"a": 1, "op": "+", "b": 1, "c": 1}, "c is unknown"),
    ],
)
def test_bad_calls_are_short_error_observations(arguments, part):
    [content] = observe(CalculatorFamily(), ToolCall("calculate", arguments))
    assert content.startswith("error: ") and part in content and len(content) < 120


def test_wrong_json_and_unknown_tools_are_observations_and_no_executed_calls():
    calls = (ToolCall("", {}, error="not JSON"), ToolCall("add", {"a": 1}))
    _, [step] = play(CalculatorFamily(), TASK, [AssistantTurn("", calls)])
    assert [m.content for m in step.messages] == [
        "error: malformed call: not JSON. tools: calculate",
        "error: no tool add. tools: calculate",
    ]
    assert step.tool_calls == 0 and [m.name for m in step.messages] == [None, None]


def test_hard_division_is_exact_or_an_observation():
    def divide(a, b):
        [content] = observe(
            HardCalculatorFamily(), ToolCall("calculate", {"a": a, "op": "/", "b": b})
        )
        return content

    assert divide(-12, 4) == "-3"
    assert divide(7, 2) == "error: 7/2 is not an integer"
    assert divide(7, 0) == "error: division by zero"


def test_an_answer_ends_the_episode_even_if_empty_and_nothing_follows():
    for content in ("", "14", "   "):
        _, [step] = play(CalculatorFamily(), TASK, [turn(content=content)])
        assert step.ending.kind is EndingKind.TERMINAL and step.ending.reason == "answered"
    with pytest.raises(ContractViolation, match="after the end"):
        play(CalculatorFamily(), TASK, [turn(content="14"), turn(content="14")])


def test_an_incomplete_turn_executes_nothing_and_ends_nothing():
    call = ToolCall("calculate", {"a": 1, "op": "+", "b": 1})
    for calls in ((), (call,)):
        _, [step] = play(CalculatorFamily(), TASK, [AssistantTurn("1", calls, complete=False)])
        assert step.ending is None and step.tool_calls == 0
        assert [m.content for m in step.messages] == [
            "error: the turn was cut off; nothing was executed"
        ]


def test_state_is_the_task_and_the_executed_calls():
    async def digests(calls, seed=0):
        world = CalculatorFamily().make()
        start = await world.reset(TASK, seed)
        seen = [start.state_digest]
        for call in calls:
            await world.step(turn(call))
            seen.append(world.state_digest())
        return seen

    good, other = {"a": 3, "op": "+", "b": 4}, {"a": 3, "op": "+", "b": 5}
    one = asyncio.run(digests([good, good]))
    assert one == asyncio.run(digests([good, good], seed=9))
    assert len(set(one)) == 3
    assert asyncio.run(digests([other]))[1] != one[1]
    assert asyncio.run(digests([{"a": 1}])) == [one[0], one[0]]


def test_forks_continue_from_the_snapshot_on_their_own():
    async def branch():
        world = CalculatorFamily().make()
        assert isinstance(world, Environment) and isinstance(world, Forkable)
        assert isinstance(world, Repeatable) and world.repeatable
        await world.reset(TASK, 0)
        await world.step(turn({"a": 3, "op": "+", "b": 4}))
        json.loads(world.snapshot())
        fork = world.fork(world.snapshot())
        assert fork.state_digest() == world.state_digest()
        assert fork.snapshot() == world.snapshot()
        await fork.step(turn({"a": 7, "op": "*", "b": 2}))
        assert fork.state_digest() != world.state_digest()
        await world.step(turn({"a": 7, "op": "*", "b": 2}))
        assert fork.state_digest() == world.state_digest()
        await fork.step(turn(content="14"))
        await world.step(turn(content="14"))

    asyncio.run(branch())


@tool(effect=Effect.EXTERNAL, isolated=False)
def post(text: str) -> str:
    """Tell the world."""
    return text


def test_a_fork_in_another_process_knows_that_a_reset_does_not_undo_everything():
    async def branch():
        box = ToolBox([post])
        world = ToolConversation(box, "expression")
        await world.reset(TASK, 0)
        before = world.snapshot()
        await world.step(AssistantTurn("", (ToolCall("post", {"text": "x"}),)))
        assert not world.repeatable
        other = ToolConversation(box, "expression")
        assert not other.fork(world.snapshot()).repeatable
        assert other.fork(before).repeatable and world.fork(before).repeatable

    asyncio.run(branch())


def test_use_before_reset_and_foreign_tasks_are_our_own_bugs():
    world = CalculatorFamily().make()
    with pytest.raises(ContractViolation, match="not reset"):
        asyncio.run(world.step(turn(content="1")))
    with pytest.raises(ContractViolation, match="no text"):
        asyncio.run(world.reset(Task("x", Split.TRAIN, {}), 0))


def test_one_event_loop_after_another_may_use_the_same_family():
    family = CalculatorFamily()
    for _ in range(3):
        play(family, TASK, family.demonstration(TASK).turns)


def test_what_a_reset_does_not_undo_makes_an_episode_unrepeatable():
    from sample_tools import note, send

    from hexad.environments.conversation import ToolConversation
    from hexad.environments.toolbox import ToolBox

    async def repeatable(*calls):
        world = ToolConversation(ToolBox([note, send]), "expression")
        await world.reset(TASK, 0)
        for name, text in calls:
            try:
                await world.step(AssistantTurn("", (ToolCall(name, {"text": text}),)))
            except ToolFault:
                assert text == ""
        return world.repeatable

    assert asyncio.run(repeatable(("note", "x"), ("note", ""), ("unknown", "x")))
    assert not asyncio.run(repeatable(("send", "x"), ("note", "x")))
