"""Damaged files of a run: told by name, passed over where an older whole one exists."""

import json
import shutil

import pytest
from tiny import hexad, train, weights

from hexad.contract.store import Store


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path):
    data = bytearray(path.read_bytes())
    middle = len(data) // 2  # one byte alone may lie where a reader never looks
    data[middle : middle + 64] = bytes(byte ^ 255 for byte in data[middle : middle + 64])
    path.write_bytes(data)


def remove(path):
    path.unlink()


def killed(run):
    """Episodes that the ledger books as lost."""
    return json.loads((run / "ledger.jsonl").read_text().splitlines()[-1])["killed"]["episodes"]


DAMAGED = [
    (cut, "policy/model.safetensors"),
    (flip, "policy/config.json"),
    (flip, "state/learner.safetensors"),
    (cut, "state/ledger.json"),
    (remove, "state/source.json"),
    (cut, "manifest.json"),
    (flip, "manifest.json"),
    (remove, "manifest.json"),
]


@pytest.mark.parametrize(("damage", "name"), DAMAGED)
def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(copied, finished, damage, name):
    damage(copied / "checkpoints" / "step_2" / name)
    code, text = train(copied, "--resume")
    assert code == 0, text
    assert "step_2 is not whole" in text and name in text and "step_1 is used" in text
    assert weights(copied) == weights(finished)
    assert killed(copied) == 4


def test_a_checkpoint_that_was_being_written_is_no_checkpoint(copied, finished):
    folder = copied / "checkpoints"
    (folder / "step_2").rename(folder / ".tmp-step_2")
    code, text = train(copied, "--resume")
    assert code == 0 and weights(copied) == weights(finished), text
    assert not (folder / ".tmp-step_2").exists()


def test_an_evaluation_says_which_checkpoint_it_used(copied):
    flip(copied / "checkpoints" / "step_2" / "policy" / "model.safetensors")
    code, text = hexad("evaluate", copied, "--tasks", 2)
    assert code == 0 and "step_2 is not whole" in text and "step 1" in text, text


def test_without_a_whole_checkpoint_each_damage_is_told_and_nothing_is_touched(copied):
    for step in (1, 2):
        flip(copied / "checkpoints" / f"step_{step}" / "state" / "learner.safetensors")
    before = {p: p.read_bytes() for p in copied.rglob("*") if p.is_file()}
    for words in (("train", "--resume"), ("evaluate",)):
        code, text = train(copied, "--resume") if words[0] == "train" else hexad(*words, copied)
        assert code == 2 and "no checkpoint is whole" in text and "Traceback" not in text
        assert "step_1" in text and "step_2" in text and "learner.safetensors" in text
    assert {p: p.read_bytes() for p in before} == before


@pytest.mark.parametrize("damage", [cut, remove])
def test_episodes_that_a_checkpoint_counts_must_be_there(copied, damage):
    part = sorted((copied / "episodes").glob("part-*.parquet"))[0]
    damage(part)
    before = weights(copied)
    code, text = train(copied, "--resume")
    assert code == 2 and "episodes" in text and "fix:" in text and "Traceback" not in text
    assert weights(copied) == before


@pytest.mark.parametrize("damage", [cut, flip])
def test_a_bad_part_after_the_checkpoint_costs_only_itself(copied, finished, damage):
    """As after a kill between the episodes of batch 1 and its checkpoint.

    What can still be counted is booked as lost; what cannot be read at all is set aside and told.
    """
    store = Store(copied / "episodes")
    second = store.read([1])
    store.truncate(0)
    store.append(1, second)
    shutil.rmtree(copied / "checkpoints" / "step_2")
    damage(copied / "episodes" / "part-000001.parquet")
    code, text = train(copied, "--resume")
    assert code == 0 and weights(copied) == weights(finished), text
    aside = "set aside" in text and "part-000001.parquet.torn" in text
    assert killed(copied) == (0 if aside else 4)  # never neither: where the damage lies decides
    assert aside or damage is flip


def test_a_log_that_lost_rows_is_named(copied):
    (copied / "metrics.jsonl").write_bytes(b"")
    code, text = train(copied, "--resume")
    assert code == 2 and "metrics.jsonl" in text and "restore" in text
