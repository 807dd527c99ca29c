"""What the gates cost, by reason, lag, age and length."""

import json

from hexad.contract.events import Consumed, EpisodeDone, EpisodeRefused, WorkersSeen
from hexad.evidence.drops import Drops, bucket
from hexad.evidence.ledger import Ledger


def test_buckets_double():
    edges = {0: "0", 0.9: "0", 1: "1", 2: "2-3", 3.5: "2-3", 4: "4-7", 1023: "512-1023"}
    assert {value: bucket(value) for value in edges} == edges


def test_drops_are_counted_by_hand_and_survive_json():
    drops = Drops()
    drops.add("stale_version", 40, 5, 2.5)
    drops.add("stale_version", 33, 4, 0.1)
    drops.add("trained", 9, 0, 0.0)
    drops.add("unscored", 3, None, None)
    assert drops.rows["stale_version"] == {
        "episodes": 2,
        "tokens": 73,
        "lag": {"4-7": 2},
        "length": {"32-63": 2},
        "age": {"2-3": 1, "0": 1},
    }
    assert drops.rows["unscored"]["lag"] == {} and drops.rows["unscored"]["length"] == {"2-3": 1}
    state = json.loads(json.dumps(drops.state()))
    again = Drops.restored(state)
    again.add("trained", 9, 0, 0.0)
    assert drops.rows["trained"]["episodes"] == 1 and again.rows["trained"]["episodes"] == 2


def test_the_ledger_shows_who_was_dropped_beside_who_was_trained(tmp_path, episode):
    ledger = Ledger(tmp_path)
    for name, tokens in (("a", 5), ("b", 40)):
        ledger(EpisodeDone(3, episode(name, tokens=tokens)))
    ledger(Consumed(3, "a", 5, 1, 0.5))
    ledger(EpisodeRefused(3, "b", ("stale_version",), 40, lag=4, age=9.0))
    ledger(WorkersSeen(3, (0.5, 1.0), (4, 2), 1, 7, 6))
    row = ledger.row()["drops"]
    assert row["trained"]["length"] == {"4-7": 1} and row["trained"]["lag"] == {"1": 1}
    assert row["stale_version"]["length"] == {"32-63": 1} and row["stale_version"]["age"] == {
        "8-15": 1
    }
    ledger.books.drop("a", "end")
    metrics = ledger.commit(3)
    assert metrics["schedule/lag/mean"] == 1.0 and metrics["time/worker_busy/mean"] == 0.75
    assert (metrics["schedule/waiting"], metrics["schedule/in_flight"]) == (7, 6)
    assert metrics["schedule/workers_lost"] == 1 and metrics["schedule/live/max"] == 4
