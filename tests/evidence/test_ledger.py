import json
import math

import pytest

from hexad.contract.events import (
    BatchTrained,
    EpisodeDone,
    EpisodeLeft,
    EpisodeRefused,
    GroupJudged,
    TasksDrawn,
    Timed,
    WorkLost,
)
from hexad.contract.faults import ContractViolation, UserError
from hexad.contract.tally import Tally
from hexad.evidence import journal
from hexad.evidence.ledger import Ledger
from hexad.evidence.metrics import describe
from hexad.evidence.tallies import tally_json, tally_of
from hexad.recipe.axes import BudgetSpec


def trained(episodes, tokens, **more):
    values = {"loss_tokens": tokens, "train_tokens": tokens, "forward_tokens": 3 * tokens}
    return BatchTrained(
        0,
        episodes=tuple(episodes),
        action_tokens=tokens,
        **{**values, "optimizer_steps": 2, **more},
    )


def fill(ledger, episode):
    """A batch of six: right, wrong, truncated, a crash, a grader failure, a stale one."""
    ledger(TasksDrawn(0, tasks=2, episodes=6))
    ledger(EpisodeDone(0, episode("a", tokens=5, tool_calls=1)))
    ledger(EpisodeDone(0, episode("b", tokens=7, status="wrong", tool_calls=3)))
    ledger(EpisodeDone(0, episode("c", tokens=9, status="wrong", ending="truncated_turns")))
    crashed = episode("d", tokens=2, status="environment_failure", ending="environment_error")
    ledger(EpisodeDone(0, crashed))
    ledger(EpisodeDone(0, episode("e", tokens=3, status="verifier_error", lost_tokens=11)))
    ledger(EpisodeDone(0, episode("f", tokens=4)))
    ledger(EpisodeRefused(0, "d", ("environment_fault", "unscored"), 2))
    ledger(EpisodeRefused(0, "e", ("unscored",), 3))
    ledger(EpisodeRefused(0, "f", ("stale_version",), 4))
    ledger(GroupJudged(0, "g1", "mixed", True, 3, 3, 21))
    ledger(GroupJudged(0, "g2", "unscored", False, 0, 3, 9))
    ledger(trained("abc", 21, loss_tokens=20, train_tokens=42))


@pytest.fixture
def ledger(tmp_path):
    return Ledger(tmp_path)


def test_the_funnel_has_eight_stages_with_counts_and_reasons(ledger, episode):
    fill(ledger, episode)
    row = ledger.row()["funnel"]
    assert (row["tasks"], row["started"], row["updates"]) == (2, 6, 2)
    ended = row["ended"]
    assert (ended["count"], ended["completed"], ended["truncated"], ended["failed"]) == (6, 4, 1, 1)
    lost = {"environment_failure": 1, "verifier_error": 1}
    assert row["rewarded"] == {"count": 4, "lost": lost}
    assert row["valid"] == {"count": 4, "lost": {"environment_fault": 1, "unscored": 1}}
    assert row["accepted"] == {"count": 3, "lost": {"stale_version": 1}}
    assert row["tokens"] == {"action": 21, "loss": 20}


def test_every_token_is_in_one_account(ledger, episode):
    fill(ledger, episode)
    ledger(EpisodeDone(0, episode("x", tokens=6), purpose="evaluation"))
    books = ledger.row()["books"]
    assert books["generated"] == 30 + 11 + 6 and books["supplied"] == 0
    assert (books["trained"], books["lost"], books["pending"]) == (21, 11, 0)
    assert books["dropped"] == {"environment_fault": 2, "unscored": 3, "stale_version": 4}
    assert books["auxiliary"] == {"evaluation": 6}
    ledger.commit(0)


def test_faults_and_unscored_episodes_are_in_no_success_rate(ledger, episode):
    fill(ledger, episode)
    row = ledger.commit(0)
    assert row["reward/success"] == 2 / 4 and row["reward/score"] == 2 / 4
    assert row["reward/scored"] == 4 / 6 and row["episode/faulted"] == 1 / 6
    assert row["group/mixed"] == 1.0 and row["group/signal"] == 1.0  # of scored groups
    assert row["episode/stale"] == 1 / 6  # of three, one for its age alone
    assert row["episode/refused"] == 3 / 6 and row["ending/truncated_turns"] == 1 / 6


def test_groups_are_counted_in_groups_and_in_tokens(ledger, episode):
    fill(ledger, episode)
    groups = ledger.row()["groups"]
    assert groups["mixed"] == {"groups": 1, "tokens": 21}
    assert groups["unscored"] == {"groups": 1, "tokens": 9}
    assert groups["signal"] == {"groups": 1, "tokens": 21}


def test_demonstrations_are_supplied_not_generated(ledger, episode):
    ledger(EpisodeDone(0, episode("a", tokens=8, actor="expert", status=None)))
    ledger(GroupJudged(0, "g", "unscored", False, 0, 1, 0))
    ledger(trained("a", 8))
    row = ledger.commit(0)
    assert not {"group/mixed", "group/signal"} & set(row)
    assert ledger.books.supplied == 8 and ledger.books.generated == 0
    assert ledger.consumed()["rollout_tokens"] == 0 and ledger.consumed()["episodes"] == 1
    assert ledger.funnel.row()["rewarded"]["lost"] == {"not_judged": 1}
    assert "reward/success" not in row and "reward/score" not in row


def test_a_metric_without_a_valid_value_is_absent(ledger, episode):
    crashed = episode("d", status="environment_failure", ending="environment_error")
    ledger(EpisodeDone(0, crashed))
    ledger(EpisodeRefused(0, "d", ("environment_fault",), 4))
    row = ledger.commit(0)
    assert not {"reward/success", "reward/score", "group/mixed"} & set(row)
    assert row["reward/scored"] == 0.0
    assert all(math.isfinite(value) for value in row.values())


def test_means_are_pooled_over_counts_not_over_shards(ledger, episode):
    ledger(EpisodeDone(0, episode("a", tokens=1)))
    tallies = {"ratio": Tally.of([1.0]) + Tally.of([2.0] * 100)}
    ledger(trained("a", 1, tallies=tallies))
    row = ledger.commit(0)
    assert row["policy/ratio/mean"] == pytest.approx(201 / 101)
    assert row["policy/ratio/max"] == 2.0 and row["policy/ratio/count"] == 101


def test_missing_values_do_not_enter_a_mean(ledger, episode):
    ledger(EpisodeDone(0, episode("a", tokens=1)))
    ledger(
        trained("a", 1, tallies={"x": Tally.of([0.5, math.nan, 0.8]), "y": Tally.of([math.nan])})
    )
    row = ledger.commit(0)
    assert row["policy/x/mean"] == pytest.approx(0.65) and row["policy/x/count"] == 2
    assert not any(key.startswith("policy/y") for key in row)


def test_a_batch_that_does_not_match_the_books_is_a_bug(ledger, episode):
    ledger(EpisodeDone(0, episode("a", tokens=5)))
    with pytest.raises(ContractViolation, match="pending"):
        ledger(trained("a", 6))


@pytest.mark.parametrize("names", ["", "ab", "b"])
def test_a_batch_of_other_episodes_is_a_bug(ledger, episode, names):
    ledger(EpisodeDone(0, episode("a", tokens=5)))
    with pytest.raises(ContractViolation):
        ledger(trained(names, 5))


def test_unbalanced_books_stop_the_run_and_write_nothing(ledger, episode, tmp_path):
    ledger(EpisodeDone(0, episode("a", tokens=5)))
    ledger.books.lost += 1
    with pytest.raises(ContractViolation, match="balance"):
        ledger.commit(0)
    assert not ledger.logs[0].exists() and not ledger.logs[1].exists()


def test_an_episode_is_booked_once_and_refused_only_if_booked(ledger, episode):
    ledger(EpisodeDone(0, episode("a")))
    with pytest.raises(ContractViolation, match="twice"):
        ledger(EpisodeDone(0, episode("a")))
    with pytest.raises(ContractViolation, match="never booked"):
        ledger(EpisodeRefused(0, "z", ("unscored",), 1))


def test_auxiliary_rollouts_consume_no_budget(ledger, episode):
    fill(ledger, episode)
    before = ledger.consumed()
    ledger(EpisodeDone(0, episode("x", tokens=6, lost_tokens=2), purpose="evaluation"))
    ledger(Timed(0, "evaluation", 100.0))
    assert ledger.consumed() == before
    assert ledger.auxiliary["evaluation"] == {"episodes": 1, "sampled_tokens": 8, "tool_calls": 0}
    ledger.commit(0)


def test_budgets_stop_the_run(ledger, episode):
    fill(ledger, episode)
    ledger(Timed(0, "rollout", 2.5))
    expected = {"episodes": 6, "rollout_tokens": 41, "train_tokens": 42, "tool_calls": 4}
    assert ledger.consumed() == {**expected, "seconds": 2.5}
    assert ledger.exhausted(BudgetSpec(episodes=7)) is None
    for key, limit in {**expected, "seconds": 2.5}.items():
        assert key in ledger.exhausted(BudgetSpec(**{key: limit}))


def test_progress_is_the_largest_share_and_ignores_the_clock(ledger, episode):
    fill(ledger, episode)
    ledger(Timed(0, "rollout", 1e6))
    budget = BudgetSpec(episodes=60, train_tokens=84, seconds=1)
    assert ledger.progress(budget) == 0.5
    assert ledger.progress(BudgetSpec(seconds=1)) == 0.0
    assert ledger.progress(BudgetSpec(episodes=3)) == 1.0


def test_restored_ledger_continues_bit_exactly(tmp_path, episode):
    whole, first = Ledger(tmp_path / "w"), Ledger(tmp_path / "f")
    for ledger in (whole, first):
        ledger.logs[0].parent.mkdir()
        fill(ledger, episode)
        ledger(trained("", 0, tallies={"r": Tally.of([0.5, -2.0, 0.0])}))
        ledger(Timed(0, "update", 0.25))
    state = json.loads(json.dumps(first.state()))
    second = Ledger(tmp_path / "f")
    second.restore(state)
    assert second.state() == first.state()
    assert second.commit(0) == whole.commit(0) and second.row() == whole.row()
    for one, other in zip(whole.logs, second.logs, strict=True):
        assert one.read_bytes() == other.read_bytes()


def test_each_row_holds_one_batch_and_the_books_are_cumulative(ledger, episode):
    fill(ledger, episode)
    ledger.commit(0)
    ledger(EpisodeDone(1, episode("z", tokens=3)))
    ledger(trained("z", 3, roles={"old": "1:abc"}))
    ledger.commit(1)
    first, second = journal.rows(ledger.logs[0])
    assert (first["step"], second["step"]) == (0, 1)
    assert second["reward/success"] == 1.0 and second["tokens/action"] == 3
    assert second["budget/episodes"] == 7
    books = journal.rows(ledger.logs[1])[1]
    assert books["books"]["trained"] == 24 and books["roles"] == {"old": "1:abc"}


def test_lost_work_is_told_but_not_charged(ledger, episode):
    fill(ledger, episode)
    before = ledger.consumed()
    ledger(WorkLost(0, episodes=4, sampled_tokens=90))
    assert ledger.consumed() == before
    assert ledger.row()["killed"] == {"episodes": 4, "sampled_tokens": 90}
    ledger.commit(0)


def test_every_written_column_is_documented(ledger, episode):
    fill(ledger, episode)
    ledger(Timed(0, "rollout", 1.0))
    ledger(trained("", 0, tallies={"ratio_update": Tally.of([1.0])}, scalars={"lr": 1e-3}))
    assert [key for key in ledger.commit(0) if describe(key) is None] == []


def test_tallies_survive_json():
    for tally in (Tally(), Tally.of([1.0, -3.5, 0.0, math.nan])):
        assert tally_of(json.loads(json.dumps(tally_json(tally), allow_nan=False))) == tally


def test_a_torn_last_line_is_not_a_row_and_a_broken_one_is_named(tmp_path):
    path = tmp_path / "x.jsonl"
    assert journal.rows(path) == []
    journal.append(path, {"a": 1})
    with open(path, "ab") as file:
        file.write(b'{"a": ')
    assert journal.rows(path) == [{"a": 1}]
    journal.append(path, {"a": 3})
    assert path.read_bytes() == b'{"a":1}\n{"a":3}\n'
    path.write_bytes(b'{"torn')
    journal.append(path, {"a": 4})
    assert journal.rows(path) == [{"a": 4}]
    path.write_bytes(b'{"a": \n{"a": 2}\n')
    with pytest.raises(UserError, match="broken") as caught:
        journal.rows(path)
    assert caught.value.where.endswith("x.jsonl:1")


def test_non_finite_numbers_never_reach_a_log(tmp_path):
    with pytest.raises(ValueError):
        journal.append(tmp_path / "x.jsonl", {"a": math.nan})


def test_the_last_row_has_what_came_after_the_last_batch(ledger, episode, tmp_path):
    fill(ledger, episode)
    ledger.commit(0)
    ledger(EpisodeDone(1, episode("h", tokens=8), "evaluation"))
    ledger(EpisodeLeft(1, "g", 6))
    ledger.close(1)
    first, last = journal.rows(tmp_path / journal.LEDGER)
    assert (first["step"], last["step"]) == (0, 1)
    assert last["histograms"] == first["histograms"] and last["roles"] == first["roles"]
    assert last["auxiliary"]["evaluation"]["sampled_tokens"] == 8
    assert last["books"]["dropped"]["run_ended"] == 6
    assert last["books"]["generated"] == first["books"]["generated"] + 8 + 6
    assert last["consumed"]["rollout_tokens"] == first["consumed"]["rollout_tokens"] + 6
    assert last["funnel"] == first["funnel"]  # nobody finished it, so it did not end
    ledger.books.generated += 1
    with pytest.raises(ContractViolation, match="do not balance"):
        ledger.close(2)
