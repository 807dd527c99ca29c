"""Violations, prices and seconds as lines of a gate."""

from hexad.cli.gate import held
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
