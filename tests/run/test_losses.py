"""Work that kills threw away is booked exactly once, whatever moment the next kill takes."""

import pytest

from builders import episode
from hexad.contract.episode import Costs
from hexad.contract.store import Store
from hexad.evidence import journal, losses
from hexad.evidence.losses import Loss


class Killed(BaseException):
    """Stands for a kill."""


@pytest.fixture
def store(tmp_path):
    made = Store(tmp_path / "episodes")
    for step in range(4):
        made.append(
            step,
            [
                episode(
                    episode_id=f"{step}-{i}",
                    group_id=f"{step}",
                    costs=Costs(sampled_tokens=10 + step, lost_tokens=100 * i),
                )
                for i in (0, 1)
            ],
        )
    return made


def test_a_rewind_is_booked_before_anything_is_dropped(store, tmp_path):
    expected = Loss(4, 2 * 12 + 2 * 13 + 200)
    assert losses.beyond(store, 1) == expected
    with losses.booked(tmp_path, store, 1):
        assert losses.total(tmp_path) == expected and store.last_step == 3
        store.truncate(1)
    assert losses.total(tmp_path) == expected and losses.beyond(store, 1) == Loss()
    with losses.booked(tmp_path, store, 1):
        pass
    assert losses.total(tmp_path) == expected
    assert len(journal.rows(tmp_path / journal.LOST)) == 2


@pytest.mark.parametrize("kept", [3, 2, 1])
def test_a_kill_inside_a_rewind_books_nothing_twice(store, tmp_path, kept):
    expected = losses.beyond(store, 1)
    with pytest.raises(Killed), losses.booked(tmp_path, store, 1):
        store.truncate(kept)
        raise Killed
    with losses.booked(tmp_path, store, 1):
        assert losses.total(tmp_path) == expected
        store.truncate(1)
    assert losses.total(tmp_path) == expected and store.last_step == 1
    store.append(2, [episode(episode_id="again")])
    with losses.booked(tmp_path, store, 1):
        store.truncate(1)
    assert losses.total(tmp_path) == expected + Loss(1, episode().costs.sampled_tokens)


def test_what_a_checkpoint_keeps_outside_the_store_is_not_lost(store, tmp_path):
    kept = {"2-0": 5, "3-1": 10**9}  # the first was under way, the second waited in the queue
    expected = Loss(2, (12 - 5) + (12 + 100) + 13)
    assert losses.beyond(store, 1, kept) == expected
    with losses.booked(tmp_path, store, 1, kept, Loss(0, 4)):
        store.truncate(1)
    assert losses.total(tmp_path) == expected + Loss(0, 4)


def test_steps_inside_a_merged_part_are_told_apart(store):
    store.compact()
    assert len(store.parts()) == 1 and losses.beyond(store, 2) == Loss(2, 126)


def test_a_torn_part_counts_nothing(store, tmp_path):
    store.parts()[-1].path.write_bytes(b"PAR1")
    assert losses.beyond(store, 1) == Loss(2, 124)
