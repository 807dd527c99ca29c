"""Several comparisons of one verifier: what one has denied no other confirms."""

import pytest
from advice_world import FAILED, FEW, PASSED, ask, methods

from hexad.advice.measured import Qualified
from hexad.advice.questions import Agreement


def qualified(*counts):
    return tuple(Qualified(Agreement(**each), f"file {i}") for i, each in enumerate(counts))


@pytest.mark.parametrize(
    ("stated", "measured", "start"),
    [
        (None, (PASSED,), ["rloo"]),
        (PASSED, (FAILED,), []),
        (PASSED, (PASSED, FAILED), []),
        (PASSED, (FAILED, PASSED), []),
        (FAILED, (PASSED,), ["rloo"]),
        (None, (FEW, PASSED), ["rloo"]),
        (None, (FEW,), []),
        (PASSED, (FEW,), ["rloo"]),  # five cases deny nothing
        (FAILED, (FEW,), []),
    ],
)
def test_measured_beats_stated_and_failed_beats_all(stated, measured, start):
    advice = ask({"feedback": {"agreement": stated}}, qualified=qualified(*measured))
    assert methods(advice) == start
    shown = [each.key for each in advice.differences]
    decided = any(each != FEW for each in measured)
    denied = decided and start != (["rloo"] if stated == PASSED else [])
    assert ("feedback.agreement" in shown) == (denied or stated is None)
