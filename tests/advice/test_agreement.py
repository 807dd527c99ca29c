"""Whether a verifier may be optimised, decided on whole intervals."""

import pytest

from hexad.advice.agreement import judge, wilson
from hexad.advice.questions import Agreement
from hexad.evidence import intervals


def state(right_accepted, right, wrong_accepted, wrong):
    given = Agreement(
        right=right, right_accepted=right_accepted, wrong=wrong, wrong_accepted=wrong_accepted
    )
    return judge(given).state


def test_the_interval_is_that_of_the_evidence_room():
    low, high = wilson(26, 30)
    assert (round(low, 3), round(high, 3)) == (0.703, 0.947)
    for count, n in ((0, 1), (0, 35), (7, 7), (3, 11)):
        assert wilson(count, n) == pytest.approx(intervals.wilson(count, n))
    assert wilson(0, 0) == (0.0, 1.0)


def test_wrong_episodes_without_one_accepted_are_enough_from_35_on():
    # z^2 / (n + z^2) with z^2 = 3.8415: .1015 for 34, .0989 for 35, and the bound is .1
    assert state(100, 100, 0, 34) == "few"
    assert state(100, 100, 0, 35) == "passed"


def test_right_episodes_must_be_accepted_too():
    # all accepted: n / (n + z^2) is .7961 for 15, .8064 for 16, and the bound is .8
    assert state(15, 15, 0, 100) == "few"
    assert state(16, 16, 0, 100) == "passed"
    assert state(30, 100, 0, 100) == "failed"


def test_a_verifier_that_accepts_everything_fails_however_often_it_agrees():
    # agreement is 190 of 200, because nearly all episodes are right
    assert state(190, 190, 10, 10) == "failed"


def test_nobody_looked_is_not_a_failure():
    assert judge(None).state == "unmeasured"
    assert state(0, 0, 0, 0) == "few"
