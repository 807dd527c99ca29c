"""Buckets and mixes in the books: merged from tallies, resumed, and readable."""

import json
import math

import pytest
from rich.console import Console
from test_ledger import trained

from hexad.contract.events import EpisodeDone
from hexad.contract.tally import Tally
from hexad.evidence.ledger import Ledger
from hexad.evidence.metrics import METRICS, describe
from hexad.evidence.staleness_report import staleness_report

BATCHES = (
    {
        "bucket/lag_2/log_ratio_direct": [0.0, 0.5],
        "bucket/lag_2/advantage": [1.0, 2.0],
        "bucket/lag_2/weight": [1.0, 1.0, 1.0],
        "mix/accepted/ending_terminal": [True, True, False],
        "mix/accepted/ending_policy_stop": [False, False, True],
    },
    {
        "bucket/lag_2/advantage": [6.0],
        "bucket/lag_2/weight": [5.0],
        "mix/accepted/ending_terminal": [True],
        "mix/fresh/ending_terminal": [True],
    },
)


def book(ledger, episode, *batches):
    for number, values in enumerate(batches, ledger.stale.episodes):
        ledger(EpisodeDone(0, episode(f"e{number}", tokens=1)))
        tallies = {name: Tally.of(v) for name, v in values.items()}
        ledger(trained([f"e{number}"], 1, tallies=tallies))


def test_a_batch_shows_its_buckets_in_few_columns(tmp_path, episode):
    ledger = Ledger(tmp_path)
    book(ledger, episode, BATCHES[0])
    row = ledger.window.row()
    found = {key: value for key, value in row.items() if key.startswith(("bucket/", "mix/"))}
    assert found == {
        "bucket/lag_2/log_ratio_direct/p50": 0.0,
        "bucket/lag_2/log_ratio_direct/p95": 0.0,
        "bucket/lag_2/log_ratio_direct/p99": 0.0,
        "bucket/lag_2/log_ratio_direct/max": 0.5,
        "bucket/lag_2/advantage": 1.5,
        "bucket/lag_2/tokens": 2,
        "bucket/lag_2/ess": 1.0,
        "mix/accepted/ending_terminal": pytest.approx(2 / 3),
        "mix/accepted/ending_policy_stop": pytest.approx(1 / 3),
        "mix/generated/ending_terminal": 1.0,
        "mix/generated/horizon_2": 1.0,
    }
    assert all(describe(key) in METRICS for key in found)
    assert not any("bucket" in key for key in ledger.row()["histograms"])


def test_the_run_is_merged_from_tallies_and_survives_a_resume(tmp_path, episode):
    whole, halves = Ledger(tmp_path), Ledger(tmp_path)
    book(whole, episode, *BATCHES)
    book(halves, episode, BATCHES[0])
    resumed = Ledger(tmp_path)
    resumed.restore(json.loads(json.dumps(halves.state())))
    book(resumed, episode, BATCHES[1])
    found = resumed.row()["staleness"]
    assert found == whole.row()["staleness"]
    bucket = found["buckets"]["lag_2"]
    assert (bucket["advantage"], bucket["tokens"]) == (3.0, 3)  # 9 / 3, no mean of 1.5 and 6
    assert bucket["ess"] == pytest.approx(8**2 / (4 * 28))  # of 1 1 1 5: algorithms.md 10
    assert found["mix"]["ending_terminal"] == {"generated": 1.0, "accepted": 0.75, "fresh": 1.0}
    assert found["mix"]["ending_policy_stop"] == {"accepted": 0.25}


def test_a_synchronous_run_has_no_such_books(tmp_path, episode):
    ledger = Ledger(tmp_path)
    book(ledger, episode, {"advantage": [1.0]})
    assert "staleness" not in ledger.row()
    assert staleness_report({"name": "x"}) == []


def test_the_summary_shows_ratios_and_shares(tmp_path, episode):
    ledger = Ledger(tmp_path)
    book(ledger, episode, *BATCHES, {"bucket/lag_16/advantage": [1.0]})
    stage = {"name": "s", "staleness": json.loads(json.dumps(ledger.row()["staleness"]))}
    console = Console(width=160, record=True, file=open("/dev/null", "w"))
    console.print(*staleness_report(stage))
    text = console.export_text()
    assert f"{math.exp(0.5):.3g}" in text and "75.0%" in text
    assert text.index("lag_2") < text.index("lag_16")
