"""Every rank receives what rank 0 harvested, with the facts that go beside the episodes."""

from types import SimpleNamespace

from builders import episode
from hexad.loop import Loop
from hexad.schedule.source import Harvest

SENT = Harvest(
    (episode(0), episode(1)),
    exhausted=True,
    dropped=((episode(2), "stale_version"),),
    greedy={"group-0": 0.5},
    ages={"episode-0": 1.25},
    begins=True,
)


def rank(number: int, wire: list[bytes]) -> Harvest:
    def broadcast(payload: bytes | None) -> bytes:
        wire.extend([payload] if payload is not None else [])
        return wire[0]

    source = SimpleNamespace(next=lambda version: SENT) if number == 0 else None
    ranks = SimpleNamespace(size=2, broadcast_bytes=broadcast)
    loop = SimpleNamespace(parts=SimpleNamespace(source=source, ranks=ranks))
    return Loop._harvest(loop, 7)


def test_a_harvest_arrives_whole_on_the_other_ranks():
    wire: list[bytes] = []
    own, other = rank(0, wire), rank(1, wire)
    for name in ("episodes", "exhausted", "greedy", "ages", "begins"):
        assert getattr(own, name) == getattr(other, name) == getattr(SENT, name)
    assert own.dropped == SENT.dropped and other.dropped == ()  # the books are rank 0's
