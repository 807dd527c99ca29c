import io
from pathlib import Path

import pytest
from rich.console import Console

from hexad.cli.progress import Watcher, describe, used_share
from hexad.contract.events import (
    BatchTrained,
    CheckpointWritten,
    Evaluated,
    Published,
    Stalled,
    Timed,
    TriggerFired,
    WorkerReplaced,
)
from hexad.evidence.ledger import Ledger
from hexad.recipe.load import load

RECIPE = Path(__file__).parents[2] / "recipes" / "calculator-grpo.yaml"
OVERRIDES = ["budget={train_tokens: 100}", "update.clip_high=0.3"]


@pytest.fixture
def show(tmp_path):
    def run(*, terminal):
        out = io.StringIO()
        console = Console(file=out, force_terminal=terminal, width=160, _environ={})
        watcher, ledger = Watcher(console), Ledger(tmp_path)
        watcher.stage("grpo", load(RECIPE, OVERRIDES), ledger)
        for version in (1, 2):
            trained = BatchTrained(version - 1, (), 0, 0, 25, 0, 1, scalars={"loss": 0.5})
            for event in (trained, Published(version, "d"), Timed(version, "publish", 0.1)):
                ledger(event)
                watcher(event)
            ledger.commit(version - 1)
        watcher(Evaluated(2, "selection", 20, 18, 0.5, 0.29, 0.71))
        watcher(Evaluated(2, "selection", 20, 0, None, None, None))
        watcher(CheckpointWritten(2, "somewhere/step_2"))
        watcher(TriggerFired(2, "k", "groups are alike", "signal [red]low[/]", "use ppo"))
        watcher(WorkerReplaced(2, "worker 0 is gone"))
        watcher(Stalled(2, "batch 2 waits for 3 [red]episodes[/]"))
        watcher.close()
        watcher.close()
        return out.getvalue()

    return run


def test_plain_lines_tell_batches_share_and_evaluations(show):
    text = show(terminal=False)
    assert "grpo: grpo, modified: update.clip_high = 0.3 (preset 0.2)" in text
    assert "grpo batch 1  loss 0.5000" in text and "25% of the budget" in text
    assert "50% of the budget" in text and "left" in text
    assert "success 50.0% [29.0%, 71.0%] of 18, 2 not scored" in text
    assert "sign to change direction: groups are alike (signal [red]low[/]): use ppo" in text
    assert "batch 2 waits for 3 [red]episodes[/]" in text  # not markup
    assert "worker 0 is gone" in text
    assert "none of 20 was scored" in text and "somewhere/step_2" in text
    assert "\x1b[" not in text


def test_a_terminal_gets_a_live_line(show):
    text = show(terminal=True)
    assert "\x1b[" in text and "batch 2" in text and "\r" in text


def test_the_share_counts_the_clock_for_the_eye_only(tmp_path):
    recipe, ledger = load(RECIPE, ["budget.seconds=10"]), Ledger(tmp_path)
    ledger(Timed(0, "rollout", 5.0))
    assert used_share(recipe, ledger) == 0.5 and ledger.progress(recipe.budget) == 0.0


def test_what_has_no_value_is_left_out():
    assert describe({}) == ""
    assert describe({"reward/success": 0.5, "tokens/action": 1200}) == "success 50%  1,200 tokens"


def test_events_before_a_stage_are_harmless():
    out = io.StringIO()
    Watcher(Console(file=out))(Published(1, "d"))
    assert out.getvalue() == ""
