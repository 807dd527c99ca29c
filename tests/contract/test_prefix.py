"""An episode that repeats another's beginning: what it says of itself, stored and admitted."""

from dataclasses import replace

from builders import episode
from fixtures.episodes import FORKED, GOOD, REFUSED, STRICT
from hexad.contract.admission import admit, admit_group
from hexad.contract.arrow import from_ipc, to_ipc
from hexad.contract.events import BatchTrained, EpisodeDone
from hexad.evidence.conduct import Conduct
from hexad.evidence.ledger import Ledger
from hexad.view.conversation import conversation

PARENT = GOOD["solved"]


def test_it_is_stored_admitted_and_fits_beside_its_parent():
    assert from_ipc(to_ipc([FORKED, PARENT])) == [FORKED, PARENT]
    assert admit(FORKED, STRICT) == [] and admit_group([PARENT, FORKED], STRICT) == []


def test_every_token_is_counted_in_one_episode():
    """Five action tokens in two turns, of which the first turn's three are the parent's."""
    assert (PARENT.action_count, PARENT.own_count) == (5, 5)
    assert (FORKED.action_count, FORKED.own_count) == (5, 2)
    assert (PARENT.tree, FORKED.tree, FORKED.group_id) == ("group-0", "group-0", "fork-episode-0-1")
    assert (PARENT.repeated, FORKED.repeated) == (0, 1)


def test_the_books_hold_it_once_and_attempts_are_measured_without_it(tmp_path):
    ledger = Ledger(tmp_path)
    wrong = replace(FORKED, verdict=GOOD["failed"].verdict)
    for each in (PARENT, wrong):
        ledger(EpisodeDone(0, each))
    ids = (PARENT.episode_id, wrong.episode_id)
    ledger(BatchTrained(0, ids, PARENT.own_count + wrong.own_count, 7, 7, 7, 1))
    row = ledger.commit(0)
    assert (ledger.books.generated, ledger.books.trained) == (7, 7)
    assert (row["budget/episodes"], row["budget/rollout_tokens"]) == (2, 7)
    assert row["reward/success"] == 1.0 and row["episode/turns"] == 2.0


def test_a_violation_that_it_repeats_is_the_parents():
    guilty = episode(refusals=REFUSED)
    counted = Conduct.of([guilty, replace(FORKED, refusals=REFUSED)])
    assert counted.violating == 1 and dict(counted.refused) == {"forbidden": 1, "unanswered": 2}


def test_the_viewer_says_what_it_repeats():
    class Words:
        def of(self, ids):
            return ["x"] * len(ids)

    assert "repeats" not in conversation(PARENT, Words(), {})["identity"]
    shown = conversation(FORKED, Words(), {})["identity"]
    assert shown["repeats"] == "episode-0 up to its turn 1"
