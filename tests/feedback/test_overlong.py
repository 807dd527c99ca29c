from dataclasses import replace

import pytest

from builders import episode, verdict
from hexad.contract.episode import Costs
from hexad.feedback.mapping import BinaryMapping
from hexad.feedback.overlong import Overlong


def rewards(tokens, judged=None):
    made = Overlong(BinaryMapping(), limit=100, cache=20)
    long = replace(episode(), costs=Costs(sampled_tokens=tokens))
    return {r.component: r.value for r in made.rewards(judged or verdict(), long)}


@pytest.mark.parametrize(
    ("tokens", "value"), [(1, 0.0), (80, 0.0), (90, -0.5), (100, -1.0), (101, -1.0), (5000, -1.0)]
)
def test_the_soft_punishment_is_the_papers(tokens, value):
    """contract.md 6.5: limit 100, cache 20."""
    assert rewards(tokens) == {"task": 1.0, "length": pytest.approx(value)}


def test_what_was_not_scored_is_not_charged():
    assert rewards(5000, verdict("verifier_error")) == {}


def test_bounds_are_part_of_the_version():
    made = {Overlong(BinaryMapping(), limit=100, cache=c).version for c in (10, 20)}
    assert len(made) == 2


@pytest.mark.parametrize(("tokens", "value"), [(16384, 0.0), (18432, -0.5), (20480, -1.0)])
def test_the_papers_own_limits(tokens, value):
    """algorithms.md 6.5: limit 20480, cache 4096."""
    made = Overlong(BinaryMapping(), limit=20480, cache=4096)
    long = replace(episode(), costs=Costs(sampled_tokens=tokens))
    found = {r.component: r.value for r in made.rewards(verdict(), long)}
    assert found["length"] == value
