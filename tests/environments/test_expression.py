import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hexad.environments.expression import BOUND, Expression, Grammar, Operation


def value(text, precedence):
    return Expression.parse(text).solve(precedence=precedence)[-1].result


def test_left_to_right_and_precedence_differ_as_they_should():
    assert value("3+4*2", precedence=False) == 14
    assert value("3+4*2", precedence=True) == 11
    assert value("20-3-4", precedence=True) == 13
    assert value("2*3-4*5", precedence=False) == 10
    assert value("2*3-4*5", precedence=True) == -14
    assert value("12/2*3", precedence=True) == 18
    assert value("1-7/7*2", precedence=True) == -1


def test_operations_come_in_the_order_of_evaluation():
    steps = Expression.parse("1+2*3+4").solve(precedence=True)
    assert steps == (Operation(2, "*", 3), Operation(1, "+", 6), Operation(7, "+", 4))
    steps = Expression.parse("1+2*3").solve(precedence=False)
    assert steps == (Operation(1, "+", 2), Operation(3, "*", 3))


def test_quotients_are_exact_or_an_error():
    assert Operation(-12, "/", 4).result == -3
    for bad in (Operation(7, "/", 2), Operation(7, "/", 0), Operation(-7, "/", 2)):
        with pytest.raises(ArithmeticError):
            _ = bad.result


@pytest.mark.parametrize(
    "text", ["", "3+", "+3", "3 + 4", "03+4", "3++4", "3-+4", "3+4x", "٣+4", "3.0+1", "(3+4)"]
)
def test_only_canonical_text_is_read(text):
    with pytest.raises(ValueError):
        Expression.parse(text)


grammars = st.builds(
    Grammar,
    low=st.integers(0, 3),
    high=st.integers(3, 2000),
    operators=st.sampled_from(["+-*", "+-*/", "/", "*", "-"]),
    precedence=st.booleans(),
)


@given(grammars, st.integers(1, 6), st.integers(0, 10**6))
def test_draws_are_solvable_in_range_and_readable(grammar, count, seed):
    drawn = grammar.draw(count, random.Random(seed))
    if drawn is None:
        return
    assert len(drawn.operators) == count
    assert all(grammar.low <= n <= grammar.high for n in drawn.numbers)
    assert Expression.parse(drawn.text) == drawn
    steps = drawn.solve(precedence=grammar.precedence)
    assert len(steps) == count
    assert all(abs(step.result) <= BOUND for step in steps)
    if grammar.precedence:
        assert steps[-1].result == eval(drawn.text.replace("/", "//"))  # exact, so // is /


def test_division_is_as_common_as_the_other_operators():
    rng, grammar = random.Random(0), Grammar(1, 20, "+-*/", precedence=True)
    drawn = [grammar.draw(4, rng) for _ in range(2000)]
    counts = Counter(op for d in drawn if d for op in d.operators)
    assert min(counts.values()) > 0.2 * sum(counts.values())
