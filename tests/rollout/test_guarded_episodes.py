"""A guard in real episodes: refused calls are observations, counted, stored and resumed."""

import asyncio
import time
from dataclasses import replace

import pytest
from calculator_world import calling, make_world, plans

from hexad.contract.admission import Needs, admit
from hexad.contract.arrow import from_ipc, to_ipc
from hexad.contract.ending import EndingKind
from hexad.contract.faults import UserError
from hexad.contract.messages import Role
from hexad.contract.task import Split
from hexad.environments.permission import Approval, Forbidden, Guard
from hexad.environments.registry import family
from hexad.environments.task_card import TaskCard
from hexad.environments.tools import Effect
from hexad.evidence.conduct import Conduct
from hexad.evidence.exam import tabulate
from hexad.feedback.prices import Prices
from hexad.feedback.terms import Terms
from hexad.policy.load import load_policy
from hexad.recipe.axes import LimitsSpec, Recipe
from hexad.rollout.collect import collect
from hexad.rollout.demonstrate import record
from hexad.rollout.guarded import guard_of, require_safe
from hexad.rollout.log import EpisodeLog
from toyworld import untimed

TIMES = Guard((Forbidden("calculate", {"op": "*"}),))


@pytest.fixture(scope="module")
def policy():
    return load_policy("builtin:tiny", seed=0)


@pytest.fixture(scope="module")
def experts(policy):
    """The expert's episodes of 12 tasks, where products are forbidden and gated."""
    world = make_world(policy)
    feedback = replace(world.feedback, terms=Terms(violation=-1.0))
    return record(plans(world, 12, 1), replace(world, guard=TIMES, feedback=feedback))


def test_a_refused_call_becomes_an_observation_and_is_counted(policy, experts):
    chat = make_world(policy).chat
    for episode in experts:
        products = episode.task_id.count("*")
        assert episode.violations == products
        heard = [m.content for m in chat.decode(episode.segments) if m.role is Role.TOOL]
        assert sum("is forbidden" in text for text in heard) == products
        executed = episode.costs.turns - 1 - products
        assert episode.costs.tool_calls == executed
        assert admit(episode, Needs.for_sft()) == []
        assert len(episode.states) == episode.costs.turns
    assert from_ipc(to_ipc(experts)) == experts


def test_a_right_answer_with_a_violation_is_a_cell_of_its_own(experts):
    """The expert answers rightly in any case."""
    count = sum("*" in episode.task_id for episode in experts)
    assert 0 < count < 12
    row = Conduct.of(experts).row()
    assert row["cells"] == {"unauthorised-success": count, "authorised-success": 12 - count}
    assert row["violating"] == count and row["gated"] == {"violation": count}
    assert Conduct.restored(row).state() == row
    for episode in experts:
        assert episode.score({"task": 5.0}) == (-1.0 if episode.violations else 5.0)
    table = tabulate("gate", 0, experts, Prices(call=2.0)).row()
    assert table["violations"] == table["unauthorised"] == count
    assert (table["scored"], table["correct"]) == (12, 12 - count), "no success, but scored"
    assert table["success"] == (12 - count) / 12 and table["verdicts"] == {"correct": 12}
    assert sum(right for right, _ in table["outcomes"].values()) == 12 - count
    assert table["cost"]["max"] == 6.0


def test_the_digest_of_the_environment_knows_the_guard(policy, experts):
    bare = record(plans(make_world(policy), 1, 1), make_world(policy))
    assert bare[0].provenance.environment != experts[0].provenance.environment
    assert bare[0].refusals == () and Conduct.of(bare).row() == {}


def test_a_refused_turn_is_resumed_from_the_log_like_any_other(policy):
    world = calling(replace(make_world(policy), guard=TIMES), policy)
    world = replace(world, limits=LimitsSpec(turns=4, turn_tokens=48, context_tokens=480))
    todo, logs = plans(world, 3, 2), [EpisodeLog.create() for _ in range(6)]
    plain = collect(todo, world)
    assert sum(e.violations for e in plain) > 0
    logged = collect(todo, world, logs=logs)
    again = collect(todo, world, logs=logs)
    assert (
        [untimed(e) for e in plain] == [untimed(e) for e in logged] == [untimed(e) for e in again]
    )


def test_waiting_for_an_approval_is_not_the_policys_time(policy):
    def slow(application):
        time.sleep(0.6)
        return True

    world = make_world(policy)
    limits = LimitsSpec(seconds=0.5)
    guard = Guard(approval=Approval(frozenset({"calculate"}), slow, 30.0))
    episodes = record(plans(world, 2, 1), replace(world, guard=guard, limits=limits))
    for episode in episodes:
        assert episode.ending.kind is EndingKind.TERMINAL and episode.refusals == ()
        assert episode.times.waited_seconds >= 0.6 * episode.costs.tool_calls


# -- what may not be explored ---------------------------------------------------------------------


class Payments:
    name = "payments"
    effects = {"pay": Effect.IRREVERSIBLE, "look": Effect.READ_ONLY}  # noqa: RUF012
    task_card = TaskCard((EndingKind.TERMINAL,), sandbox="a test account")

    @property
    def tools(self):
        return family("calculator").tools


def asked(**sections):
    return Recipe.model_validate(sections)


HELD = {"guard": {"forbidden": [{"tool": "pay"}]}}
GATE = {"gate": {"reward": 0.0}}


def test_an_irreversible_task_needs_a_sandbox_a_guard_and_a_gate():
    require_safe(asked(task=HELD, feedback=GATE), Payments())
    approved = {"guard": {"approval": {"tools": ["pay"], "approver": "mine:ask"}}}
    require_safe(asked(task=approved, feedback=GATE), Payments())
    open_ = type("Open", (Payments,), {"task_card": TaskCard((EndingKind.TERMINAL,))})
    some = {"guard": {"forbidden": [{"tool": "pay", "arguments": {"to": "me"}}]}}
    for recipe, made, missing in (
        (asked(task=HELD, feedback=GATE), open_(), "a sandbox"),
        (asked(feedback=GATE), Payments(), "task.guard that forbids 'pay'"),
        (asked(task=some, feedback=GATE), Payments(), "task.guard that forbids 'pay'"),
        (asked(task=HELD), Payments(), "a hard gate"),
    ):
        with pytest.raises(UserError, match=missing) as caught:
            require_safe(recipe, made)
        assert "'pay' irreversible" in str(caught.value) and "look" not in str(caught.value)


def test_a_guard_is_made_of_the_recipe_and_the_card():
    calculator = family("calculator")
    assert guard_of(asked(), calculator) is None
    with pytest.raises(UserError, match="no tool 'pay'"):
        guard_of(asked(task=HELD), calculator)
    calculator.task_card = TaskCard((EndingKind.TERMINAL,), forbidden=("calculate",))
    guard = guard_of(asked(), calculator)
    (task,) = calculator.tasks(Split.TRAIN, 1)
    turn = calculator.demonstration(task).turns[0]
    assert len(asyncio.run(guard.review(task, 0, turn)).refusals) == 1
    for bad in ("no.such.module:x", "math:pi"):
        with pytest.raises(UserError):
            guard_of(asked(task={"guard": {"rule": bad}}), calculator)
