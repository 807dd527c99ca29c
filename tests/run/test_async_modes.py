"""The real loop under every way to refresh weights and to cut episodes, and with a dead tool."""

from collections import Counter

import pytest
from async_run import MARK, require_sound, rows, write_recipe

from hexad.contract.store import Store
from hexad.recipe.load import load
from hexad.run import compose
from hexad.schedule.crew import Crew

pytestmark = pytest.mark.timeout(900)
LONGER = ["task.limits.turn_tokens=16", "budget.episodes=12", "system.engine_rows=2"]


def trained(tmp_path, monkeypatch, *words):
    """A finished run, what came from its workers by kind, its last books and its episodes."""
    run, heard, inner = tmp_path / "run", Counter(), Crew.hear
    run.mkdir()
    monkeypatch.setenv(MARK, str(run))

    def hear(crew, timeout):
        news = inner(crew, timeout)
        heard.update(type(each).__name__ for each in news)
        return news

    monkeypatch.setattr(Crew, "hear", hear)
    with compose(load(write_recipe(tmp_path), [*LONGER, *words]), run) as loop:
        loop.run()
    monkeypatch.delenv(MARK)
    require_sound(run)
    return heard, rows(run, "ledger.jsonl")[-1]["books"], Store(run / "episodes").read()


def versions(episode):
    return {version for version, _ in episode.provenance.versions}


def test_a_tool_that_never_returns_is_a_fault_and_the_run_goes_on_with_paused_episodes(
    tmp_path, monkeypatch
):
    heard, books, episodes = trained(
        tmp_path,
        monkeypatch,
        "timing.refresh=at_episode",
        "timing.partial={tokens: 7, train: all}",
        "task.chaos={hang: 0.2}",
        "task.limits.step_seconds=1.5",
        "task.limits.reset_seconds=1.5",
        "data.fault_limit=1.0",
        "data.retries=0",
    )
    assert heard["Parked"] > 0 and heard["Gone"] == 0
    assert {e.stratum for e in episodes} <= {f"operations {n}" for n in (1, 2, 3)}
    hung = [e for e in episodes if e.ending.faulted]
    assert hung and all("took longer than 1.5 s" in e.ending.reason for e in hung)
    tokens = sum(e.costs.sampled_tokens for e in hung)
    assert books["dropped"].get("environment_fault", 0) == tokens
    assert books["trained"] > 0
    for episode in episodes:  # all tokens are trained on, or none: then it came too late
        assert len({w for s in episode.segments for w in s.weight[s.action].tolist()}) <= 1


def test_partial_episodes_take_weights_in_flight_and_the_newest_tokens_are_trained_on(
    tmp_path, monkeypatch
):
    heard, books, episodes = trained(
        tmp_path,
        monkeypatch,
        "timing.refresh=in_flight",
        "timing.partial={tokens: 7, train: newest}",
    )
    assert heard["Parked"] > 0 and books["trained"] > 0
    mixed = [e for e in episodes if len(versions(e)) > 1]
    for episode in mixed:
        newest = max(versions(episode))
        for part in episode.segments:
            assert not part.weight[part.version != newest].any()
    assert mixed and sum(s.weight.sum() for e in mixed for s in e.segments) > 0
