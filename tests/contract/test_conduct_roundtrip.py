"""Refusals, signals and gates are stored with the episode, and a gate is all that is paid."""

import math
from dataclasses import replace

import pytest

from builders import episode, segment, verdict
from fixtures.episodes import GUARDED as FULL
from fixtures.episodes import REFUSED
from hexad.contract.admission import Needs, Reason, admit
from hexad.contract.arrow import from_ipc, to_ipc
from hexad.contract.reward import Gate, Owner, OwnerKind, Reward


def test_they_survive_storage():
    assert from_ipc(to_ipc([FULL, episode(1)])) == [FULL, episode(1)]


def test_silence_is_no_violation():
    assert FULL.violations == 1 and replace(FULL, refusals=REFUSED[1:]).violations == 0


def test_a_gate_is_paid_whatever_the_components_and_weights_are():
    assert FULL.score({"task": 100.0}) == -1.0
    assert replace(FULL, gate=None).score({"call": 2.0}) == 2.0
    assert [r.component for r in FULL.paid] == ["gate"]
    assert math.isnan(replace(FULL, verdict=verdict("verifier_error")).score({}))


@pytest.mark.parametrize("number", [0, 1, -1])
def test_a_call_that_was_not_written_owns_nothing(number):
    made = replace(FULL, rewards=(Reward("call", 0.5, Owner(OwnerKind.CALL, number)),))
    found = [violation.reason for violation in admit(made, Needs(reward=True))]
    assert found == ([] if number == 0 else [Reason.REWARD_OWNER])


def test_a_gate_is_a_number():
    made = replace(FULL, gate=Gate(math.nan, "violation"))
    assert [v.reason for v in admit(made, Needs(reward=True))] == [Reason.NONFINITE_REWARD]


def test_calls_are_counted_over_segments():
    runs = (("user", 2), ("tool_call", 3), ("observation", 2), ("tool_call", 2))
    made = episode(segments=(segment(runs), segment(runs, parent=0, origin="summary")))
    assert made.calls == ((0, 1), (0, 3), (1, 1), (1, 3))
