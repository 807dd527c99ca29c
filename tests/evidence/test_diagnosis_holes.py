"""What training called correct and the independent verifier calls wrong is a hole, gap or none."""

import pytest

from hexad.evidence.diagnosis import diagnose as module
from hexad.evidence.diagnosis.findings import SYMPTOMS, Finding
from hexad.evidence.intervals import wilson


def cells(correct, contradicted):
    paid = {"high-hit": correct - contradicted, "high-miss": contradicted}
    return {
        **paid,
        "paid_for_nothing": contradicted / correct if correct else None,
        "interval": wilson(contradicted, correct),
        "correct": correct,
        "contradicted": contradicted,
    }


@pytest.mark.parametrize(("wrong", "expected"), [(0, []), (4, []), (12, [0.85]), (60, [0.96])])
def test_disagreement_beyond_its_interval_is_a_hole(wrong, expected):
    found = module._contradicted(cells(200, wrong), 7)
    assert [finding.confidence for finding in found] == expected
    assert all(f.symptom.key == "verifier-hole" and f.since == 7 for f in found)


def test_nothing_correct_contradicts_nothing():
    assert module._contradicted(cells(0, 0), 7) == []


def test_a_gap_without_a_miss_is_not_named_a_hole():
    gap = Finding(SYMPTOMS["verifier-hole"], 0.9, 3, ("a gap",))
    assert module._audited(gap, cells(200, 0)).confidence < module.LEAST
    assert module._audited(gap, cells(200, 20)).confidence > 0.9
    unpaid = module._audited(gap, cells(0, 0))
    assert unpaid.confidence < module.LEAST and "was paid" in unpaid.evidence[-1]
