"""The one table of metrics: every column of a real run is in it, and the page says the same."""

from pathlib import Path

import pytest

from hexad.evidence.metrics import METRICS, describe, markdown

DOCS = Path(__file__).parents[2] / "docs" / "metrics.md"


def test_the_page_is_the_table():
    assert DOCS.read_text() == markdown()


def test_every_entry_has_a_unit_an_axis_and_an_own_key():
    keys = [metric.key for metric in METRICS]
    assert len(keys) == len(set(keys))
    assert all(metric.meaning and metric.unit for metric in METRICS)
    assert {metric.axis for metric in METRICS} == {
        "feedback", "data", "action", "credit", "critic", "timing", "run",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("column", "key"),
    [
        ("reward/success", "reward/success"),
        ("policy/kl", "policy/kl/*"),
        ("policy/kl/p99", "policy/kl/*"),
        ("policy/kl_reference/mean", "policy/kl_reference/*"),
        ("policy/grad_norm", "policy/*"),
        ("log_ratio/engine/max", "log_ratio/engine/*"),
        ("log_ratio/update/p99", "log_ratio/*"),
        ("time/queue_age/p95", "time/queue_age/*"),
        ("time/update", "time/*"),
        ("critic/value_mean", "critic/*"),
    ],
)
def test_a_column_falls_under_its_longest_entry(column, key):
    found = describe(column)
    assert found is not None and found.key == key
    assert describe("policy_kl") is None


def test_a_healthy_range_has_both_its_ends():
    signal, scored = describe("group/signal"), describe("episode/faulted")
    assert signal is not None and scored is not None
    assert signal.holds(0.2) and not signal.holds(0.19) and signal.healthy == "above 0.2"
    assert scored.holds(0.05) and not scored.holds(0.06) and scored.healthy == "below 0.05"
    plain = describe("episode/turns")
    assert plain is not None and plain.holds(1e9) and plain.healthy == ""
