"""O10: what dynamic sampling drew, dropped and trained on, as the books of a run say it."""

from dataclasses import replace

from builders import episode, segment, verdict
from hexad.contract.episode import Costs
from hexad.contract.events import EpisodeDone, EpisodeRefused, TasksDrawn
from hexad.contract.reward import Reward
from hexad.evidence.ledger import Ledger
from hexad.learner.assemble import assemble
from hexad.learner.report import UpdateReport
from hexad.loop import _trained
from hexad.recipe.axes import Recipe
from hexad.schedule.dynamic import Refill

STREAM = (((0, 0), 10), ((1, 1), 20), ((0, 1), 30), ((1, 1), 40), ((1, 0), 50))
"""Rewards of a group, and the tokens of both members together."""


def members(number, rewards, tokens):
    each = tokens // 2
    return tuple(
        replace(
            episode(10 * number + i),
            group_id=f"g{number}",
            member=i,
            segments=(segment((("user", 2), ("text", each))),),
            costs=Costs(sampled_tokens=each, turns=1),
            verdict=verdict("correct" if reward else "wrong"),
            rewards=(Reward("task", float(reward)),),
        )
        for i, reward in enumerate(rewards)
    )


def test_o10_the_books_tell_all_that_was_sampled_from_what_was_kept(tmp_path):
    groups = [members(i, *each) for i, each in enumerate(STREAM)]
    ledger, place = Ledger(tmp_path), 0

    def draw(count):
        nonlocal place
        found = groups[place : place + count]
        place += len(found)
        ledger(TasksDrawn(0, len(found), 2 * len(found)))
        for each in (e for group in found for e in group):
            ledger(EpisodeDone(0, each))
        return found, place == len(groups)

    dynamic = {"surplus": "drop", "rounds": 9, "at_cap": "train"}
    data = {"groups": 2, "group_size": 2, "dynamic": dynamic}
    harvest = Refill(Recipe.model_validate({"data": data})).fill(0, draw)
    for dropped, reason in harvest.dropped:
        ledger(EpisodeRefused(0, dropped.episode_id, (reason,), dropped.action_count))
    batch = assemble(harvest.episodes)
    ledger(_trained(0, batch, UpdateReport(1, 80, 80, 88, 0, stopped=False), harvest, True))

    row = ledger.row()
    assert row["funnel"]["tasks"] == 5 and row["funnel"]["started"] == 10
    assert row["books"]["generated"] == 150 and row["books"]["trained"] == 80
    assert row["books"]["dropped"] == {"no_signal_all_wrong": 10, "no_signal_all_right": 60}
    assert row["books"]["pending"] == 0
    metrics = ledger.commit(0)
    assert (metrics["reward/success"], metrics["reward/kept_success"]) == (0.6, 0.5)
