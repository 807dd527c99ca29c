import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hexad.credit.dynamic import Outcome, Signal, select, signal


def group(scores, tokens=0, live=None, success=None):
    live = live if live is not None else [True] * len(scores)
    success = success if success is not None else [s > 0.5 for s in scores]
    return Outcome(tuple(map(float, scores)), tuple(live), tuple(success), tokens)


STREAM = [
    group([0, 0], 10),
    group([1, 1], 20),
    group([0, 1], 30),
    group([1, 1], 40),
    group([1, 0], 50),
]
"""O10: target 2, K = 2."""

RULES = {"surplus": "drop", "capped": False, "at_cap": "partial"}


def test_o10():
    found = select(STREAM, 2, **RULES)
    assert found.kept == (2, 4)
    assert found.dropped[Signal.ALL_WRONG] == (0,)
    assert found.dropped[Signal.ALL_RIGHT] == (1, 3)
    assert not found.short
    assert found.more == 0


def test_refill_is_asked_for_before_the_cap():
    found = select(STREAM[:3], 2, **RULES)
    assert (found.kept, found.carried, found.surplus) == ((), (2,), ())
    assert found.short
    assert found.more == 1


@pytest.mark.parametrize(("at_cap", "kept", "carried"), [("partial", (2,), ()), ("skip", (), (2,))])
def test_the_cap_has_a_declared_outcome_and_loses_no_group(at_cap, kept, carried):
    found = select(STREAM[:4], 2, surplus="drop", capped=True, at_cap=at_cap)
    assert (found.kept, found.carried, found.surplus) == (kept, carried, ())
    assert found.short
    assert found.more == 0
    nothing = select(STREAM[:2], 2, surplus="drop", capped=True, at_cap=at_cap)
    assert nothing.kept == ()
    assert nothing.short


@pytest.mark.parametrize(("surplus", "carried", "gone"), [("carry", (4,), ()), ("drop", (), (4,))])
def test_surplus_is_carried_or_dropped_in_task_order(surplus, carried, gone):
    found = select(STREAM, 1, surplus=surplus, capped=False, at_cap="skip")
    assert (found.kept, found.carried, found.surplus) == ((2,), carried, gone)
    assert not found.short
    with pytest.raises(ValueError, match="target"):
        select(STREAM, 0, **RULES)


@pytest.mark.parametrize(
    ("outcome", "expected", "mixed"),
    [
        (group([0, 1]), Signal.USABLE, True),
        (group([1, 0], live=[True, False]), Signal.ALONE, False),
        (group([1, math.nan, math.inf]), Signal.ALONE, False),
        (group([1, 1, 0], live=[True, True, False]), Signal.ALL_RIGHT, False),
        (group([0.6667, 0.66670001]), Signal.ALL_RIGHT, False),
        (group([0.1 + 0.2, 0.3]), Signal.ALL_WRONG, False),
        (group([0, 1e-5]), Signal.USABLE, False),
        (group([0.5, 0.5], success=[True, False]), Signal.FLAT, True),
        (group([0.9, 0.8]), Signal.USABLE, False),
        (group([]), Signal.ALONE, False),
    ],
)
def test_signal_by_advantage_and_mixed_by_verdict_are_two_things(outcome, expected, mixed):
    assert signal(outcome) is expected
    assert outcome.mixed is mixed


def test_the_tolerance_is_declared():
    assert signal(group([0.6, 0.7]), tolerance=0.05) is Signal.USABLE
    assert signal(group([0.6, 0.7]), tolerance=0.2) is Signal.ALL_RIGHT
    found = select([group([0.6, 0.7])], 1, **RULES, tolerance=0.2)
    assert found.dropped[Signal.ALL_RIGHT] == (0,)


groups = st.lists(
    st.builds(
        lambda scores, tokens: group(scores, tokens),
        st.lists(st.sampled_from([0.0, 1.0, math.nan]), min_size=1, max_size=4),
        st.integers(0, 100),
    ),
    max_size=10,
)


@settings(max_examples=80, deadline=None)
@given(
    groups,
    st.integers(1, 4),
    st.sampled_from(["carry", "drop"]),
    st.booleans(),
    st.sampled_from(["partial", "skip"]),
)
def test_the_books_balance(outcomes, target, surplus, capped, at_cap):
    found = select(outcomes, target, surplus=surplus, capped=capped, at_cap=at_cap)
    dropped = [i for part in found.dropped.values() for i in part]
    places = [*found.kept, *found.carried, *found.surplus, *dropped]
    assert sorted(places) == list(range(len(outcomes)))
    assert len(found.kept) <= target
    assert list(found.kept) == sorted(found.kept)
    if not found.short:
        assert len(found.kept) == target
