"""Process signals, prices, efforts, gates and group lengths by hand."""

from dataclasses import replace

import pytest

from builders import episode, segment, verdict
from hexad.contract.faults import UserError
from hexad.contract.messages import Message, Role, ToolCall
from hexad.contract.refusal import Refusal, RefusalReason
from hexad.contract.reward import Gate, Levels, Owner, OwnerKind, Reward
from hexad.contract.task import Split, Task
from hexad.contract.verdict import VerdictStatus
from hexad.environments.registry import family
from hexad.feedback.judge import Feedback
from hexad.feedback.mapping import BinaryMapping
from hexad.feedback.prices import QUANTITIES, Prices, amount
from hexad.feedback.process import Process, signal
from hexad.feedback.progress import RemainingOperations
from hexad.feedback.relative import with_length
from hexad.feedback.terms import Effort, Terms

CALCULATOR = family("calculator")
TASK = Task("calculator:3+4*2", Split.TRAIN, {"expression": "3+4*2", "operations": 2})
VIOLATION = (Refusal(0, 0, "calculate", RefusalReason.FORBIDDEN),)


def call(a, op, b):
    return ToolCall("calculate", {"a": a, "op": op, "b": b})


def said(*calls, text=""):
    return Message(Role.ASSISTANT, text, tool_calls=calls)


def heard(text):
    return Message(Role.TOOL, str(text), "calculate")


QUESTION = Message(Role.USER, "3+4*2")
SOLVED = (
    QUESTION,
    said(call(3, "+", 4)),
    heard(7),
    said(call(7, "*", 2)),
    heard(14),
    said(text="14"),
)


class Steps:
    """A signal that says how many messages there are."""

    version = "steps/1"

    def __init__(self, family, scale=1.0):
        self.scale = scale

    def level(self, task, transcript):
        return self.scale * len(transcript)


class Broken(Steps):
    def level(self, task, transcript):
        raise KeyError("gone")


class Odd(Steps):
    def level(self, task, transcript):
        return float("nan")


def levels(transcript, signal=None):
    made = Process("p", signal or RemainingOperations(CALCULATOR), "potential")
    return made.levels(TASK, transcript).values


def test_remaining_operations_of_the_states_of_a_solution():
    assert levels(SOLVED) == (-1.0, -0.5, 0.0, 0.0)


def test_only_the_right_next_operation_that_was_executed_counts():
    wrong = (QUESTION, said(call(4, "*", 2)), heard(8), said(call(3, "+", 4)), heard(7))
    assert levels(wrong) == (-1.0, -1.0, -0.5)
    refused = (QUESTION, said(call(3, "+", 4)), heard("error: not executed: no"), said(text="7"))
    assert levels(refused) == (-1.0, -1.0, -1.0)
    again = (QUESTION, said(call(3, "+", 4)), heard(7), said(call(3, "+", 4)), heard(7))
    assert levels(again) == (-1.0, -0.5, -0.5), "the same operation twice is one"
    both = (QUESTION, said(call(3, "+", 4), call(7, "*", 2)), heard(7), heard(14))
    assert levels(both) == (-1.0, 0.0)


def test_precedence_is_the_familys():
    hard = Process("p", RemainingOperations(family("calculator-hard")), "potential")
    first = (QUESTION, said(call(4, "*", 2)), heard(8))
    assert hard.levels(TASK, first).values == (-1.0, -0.5)
    with pytest.raises(UserError, match="has none"):
        RemainingOperations(type("Family", (), {"name": "mine"})())


@pytest.mark.parametrize(
    ("paid", "values"),
    [("increment", [0.5, 0.25]), ("cumulative", [-0.5, -0.25]), ("potential", [])],
)
def test_levels_are_paid_to_the_turns_that_reached_them(paid, values):
    """The builders' episode: a call in turn 0, an answer in turn 1."""
    held = Levels("p", (-1.0, -0.5, -0.25))
    for owner, first in (("turn", Owner(OwnerKind.TURN, 0)), ("call", Owner(OwnerKind.CALL, 0))):
        found = Process("p", Steps(None), paid, owner).rewards(episode(), held)
        assert [r.value for r in found] == values
        assert [r.owner for r in found] == [first, Owner(OwnerKind.TURN, 1)][: len(values)]


def judged(terms, transcript=SOLVED[:4], **changes):
    class Right:
        digest = "right"

        def verify(self, task, episode, transcript):
            return verdict()

    feedback = Feedback(Right(), BinaryMapping(), terms=terms)
    return feedback.apply(TASK, episode(**({"rewards": (), "verdict": None} | changes)), transcript)


@pytest.mark.parametrize("bad", [Broken, Odd])
def test_a_signal_that_fails_leaves_the_episode_unscored(bad):
    found = judged(Terms((Process("p", bad(None), "increment"),)))
    assert found.verdict.status is VerdictStatus.VERIFIER_ERROR and found.rewards == ()
    assert found.signals == () and "process signal p" in found.verdict.evidence


def test_terms_join_the_verdicts_reward_and_change_the_digest():
    terms = Terms((Process("p", Steps(None), "increment"),), Prices(0.25, 1.0, {"calculate": 0.5}))
    found = judged(terms)
    assert found.signals == (Levels("p", (1.0, 3.0, 4.0)),)
    assert found.score({}) == pytest.approx(1.0 + 2.0 + 1.0 - 0.25 - 0.25 - 0.5)
    bare, full = Feedback(None_, BinaryMapping()), Feedback(None_, BinaryMapping(), terms=terms)
    assert bare.digest != full.digest and Terms().digest is None


class None_:
    digest = "verifier"


def test_signals_are_found_by_name():
    made = signal("test_process_signals:Steps", CALCULATOR, {"scale": 2.0}, "feedback.process.p")
    assert made.level(TASK, SOLVED) == 12.0
    assert isinstance(signal("remaining_operations", CALCULATOR, {}, "w"), RemainingOperations)
    for name, options in (("remaining", {}), ("test_process_signals:Steps", {"size": 1})):
        with pytest.raises(UserError):
            signal(name, CALCULATOR, options, "feedback.process.p")


# -- prices, efforts, gates -----------------------------------------------------------------------


def test_quantities_have_owners():
    """Two turns of 4 and 2 sampled tokens, one call."""
    made = replace(episode(), refusals=VIOLATION)
    assert {name: amount(count(made)) for name, count in QUANTITIES.items()} == {
        "turns": 2,
        "calls": 1,
        "sampled_tokens": 5,
        "violations": 1,
    }
    tokens = QUANTITIES["sampled_tokens"](made)
    assert [(r.owner.index, r.value) for r in tokens] == [(0, 3.0), (1, 2.0)]


def test_prices_charge_turns_and_calls_by_tool():
    other = Prices(call=3.0, tools={"search": 7.0}).charges(episode())
    assert other == (Reward("cost", 3.0, Owner(OwnerKind.CALL, 0)),)
    assert Prices().charges(episode()) == ()


@pytest.mark.parametrize(("budget", "gated"), [(2.5, False), (2.4, True)])
def test_an_effort_beyond_the_budget_overrides_the_reward(budget, gated):
    """5 sampled tokens against factor 1, b0 for each of two operations."""
    terms = Terms(effort=Effort(budget, 1.0, "sampled_tokens", "operations", -1.0))
    found = judged(terms)
    assert found.gate == (Gate(-1.0, "effort") if gated else None)
    assert found.score({}) == (-1.0 if gated else 1.0)
    with pytest.raises(UserError, match="no positive number 'size'"):
        judged(Terms(effort=Effort(budget, 1.0, "turns", "size", -1.0)))


@pytest.mark.parametrize(("refusals", "score"), [((), 1.0), (VIOLATION, 0.0)])
def test_a_hard_gate_pays_what_it_declares(refusals, score):
    """algorithms.md 8.5: (1, 0) -> 1, (1, 1) -> 0."""
    found = judged(Terms(violation=0.0), refusals=refusals)
    assert found.score({}) == score and found.verdict.success
    silent = (replace(VIOLATION[0], reason=RefusalReason.UNANSWERED),)
    assert judged(Terms(violation=0.0), refusals=silent).gate is None


# -- length inside a group ------------------------------------------------------------------------


def long(number, tokens, status="correct", group="g"):
    runs = (("user", 2), ("text", tokens))
    made = replace(episode(number, segments=(segment(runs),)), group_id=group)
    return replace(made, verdict=verdict(status))


def test_length_rewards_are_the_papers():
    """lambda = 1/2 - (l - 2) / 8: lengths 2, 6, 10 give .5, 0, -.5; a wrong one at most 0."""
    group = [long(0, 2), long(1, 6), long(2, 10), long(3, 2, "wrong"), long(4, 8, "wrong")]
    alone, broken = long(5, 30, group="h"), long(6, 50, "verifier_error")
    found = with_length([*group, alone, broken], "sampled_tokens")
    values = [e.rewards[-1].value for e in found[:6]]
    assert values == pytest.approx([0.5, 0.0, -0.5, 0.0, -0.25, 0.0])
    assert found[6] is broken, "what was not scored is compared with nobody"
    assert [e.rewards[-1].component for e in found[:6]] == ["length"] * 6
