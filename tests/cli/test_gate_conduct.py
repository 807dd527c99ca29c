"""Violations, prices and seconds as lines of a gate."""

import math

import pytest

from hexad.cli.gate import held
from hexad.evidence.tallies import exact
from hexad.recipe.gate import GateFile

ROW = {
    "verdicts": {},
    "endings": {},
    "unscored": 0,
    "violations": 2,
    "unauthorised": 1,
    "cost": {"p95": 0.5},
    "time": {"episode_seconds": {"p95": 3.0}},
}


def met(**asked):
    return [demand["met"] for demand in held(GateFile(unscored=None, **asked), ROW)]


def test_conduct_is_held_apart_from_success():
    assert met(violations=2, unauthorised=1) == [True, True]
    assert met(violations=1, unauthorised=0) == [False, False]


def test_costs_and_seconds_are_95th_percentiles():
    assert met(p95={"cost": 0.5, "seconds": 3.0}) == [True, True]
    assert met(p95={"cost": 0.4, "seconds": 2.9}) == [False, False]
    nothing = ROW | {"time": {"episode_seconds": {"count": 0}}}
    (demand,) = held(GateFile(unscored=None, p95={"seconds": 9.0}), nothing)
    assert not demand["met"], "what was not measured is not met"


def test_a_gate_decides_by_quantiles_that_occurred():
    """A histogram's bin says 3.084 of the first and 1.09 of the second."""
    turns = exact([3] * 99 + [4])
    assert (turns["p50"], turns["p95"], turns["p99"], turns["max"]) == (3, 3, 3, 4)
    cost = exact([1.0] * 94 + [1.18] * 6)
    assert cost["p95"] == 1.18 and math.isclose(cost["mean"], 1.0108)
    row = ROW | {"turns": turns, "cost": cost}
    asked = GateFile(unscored=None, p95={"turns": 3, "cost": 1.1})
    assert [demand["met"] for demand in held(asked, row)] == [True, False]
    assert exact([1.0] * 95 + [2.0] * 5)["p95"] == 1.0, "95 % do not exceed it"
    assert exact([]) == {"count": 0, "missing": 0}


@pytest.mark.parametrize(
    "asked",
    [{}, {"tasks": 4}, {"p95": {}}, {"success": None}, {"p95": {"cost": None}}, {"unscored": None}],
)
def test_what_asks_nothing_is_known_by_its_values(asked):
    assert not GateFile(**asked).asks
    assert GateFile(**asked | {"violations": 0}).asks and GateFile(**asked | {"unscored": 0}).asks
