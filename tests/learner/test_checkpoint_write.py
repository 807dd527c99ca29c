"""A checkpoint is whole or absent; the newest whole one wins and says what it passed over."""

import errno
import json
import os
import shutil

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from builders import episode
from hexad.contract import durable
from hexad.contract.faults import UserError
from hexad.contract.store import Store
from hexad.learner import checkpoint
from hexad.learner.checkpoint import Journal
from hexad.learner.manifest import Manifest
from hexad.learner.registry import Registry


class Counter:
    """A run in miniature: one tensor, one number."""

    def __init__(self):
        self.weight, self.steps = torch.zeros(4), 0

    def state(self):
        return {"weight": self.weight, "steps": self.steps}

    def restore(self, state):
        self.weight, self.steps = state["weight"], state["steps"]


class Run:
    def __init__(self, folder, keep=2):
        self.folder, self.part, self.registry = folder, Counter(), Registry()
        self.registry.register("counter", self.part)
        self.metrics = folder / "metrics.jsonl"
        self.store = Store(folder / "episodes")
        self.journal = Journal((self.metrics, folder / "ledger.jsonl"), self.store, keep)

    def step(self):
        step = self.part.steps
        self.store.append(step, [episode(10 * step + i) for i in range(2)])
        with open(self.metrics, "a") as file:
            file.write(json.dumps({"step": step}) + "\n")
        self.part.steps += 1
        self.part.weight = self.part.weight + 1

    def save_policy(self, folder):
        save_file({"weight": self.part.weight}, folder / "model.safetensors")
        (folder / "config.json").write_text("{}")

    def write(self):
        return checkpoint.write(
            self.folder, self.part.steps, self.save_policy, self.registry, self.journal
        )

    def to(self, step):
        while self.part.steps < step:
            self.step()
        return self.write()


@pytest.fixture
def run(tmp_path):
    return Run(tmp_path)


def names(run):
    return sorted(os.listdir(run.folder / "checkpoints"))


def test_layout_and_manifest(run):
    path = run.to(3)
    files = sorted(p.relative_to(path).as_posix() for p in path.rglob("*") if p.is_file())
    assert files == [
        "manifest.json",
        "policy/config.json",
        "policy/model.safetensors",
        "state/counter.json",
        "state/counter.safetensors",
    ]
    record = Manifest.parse((path / "manifest.json").read_bytes())
    assert sorted(record.files) == files[1:] and record.step == 3
    assert record.files["policy/config.json"] == (
        2,
        "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a",
    )
    assert record.logs == {"metrics.jsonl": run.metrics.stat().st_size, "ledger.jsonl": 0}
    assert (record.store.last_step, record.store.episodes) == (2, 6)


def test_manifest_is_written_last(run, monkeypatch):
    run.to(1)
    seen = []
    sync = durable.sync_file
    monkeypatch.setattr(durable, "sync_file", lambda p: (seen.append(p.name), sync(p)))
    monkeypatch.setattr(checkpoint, "sync_file", lambda p: (seen.append(p.name), sync(p)))
    run.to(2)
    written = [name for name in seen if not name.endswith(".jsonl")]
    assert written[-1] == "manifest.json" and len(written) == 5


def test_newest_is_the_highest_number_not_the_highest_word(run):
    run.to(9)
    run.to(10)
    found = checkpoint.newest(run.folder)
    assert (found.step, found.path.name, found.skipped) == (10, "step_10", ())
    assert found.policy == found.path / "policy"


def test_no_checkpoint_is_none(tmp_path):
    assert checkpoint.newest(tmp_path) is None
    (tmp_path / "checkpoints").mkdir()
    assert checkpoint.newest(tmp_path) is None


def test_old_checkpoints_are_pruned(run):
    for step in (1, 2, 3, 4):
        run.to(step)
    assert names(run) == ["step_3", "step_4"]


def spoil_truncated(path):
    file = path / "policy" / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    return "model.safetensors has"


def spoil_flipped(path):
    file = path / "state" / "counter.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    return "state/counter.safetensors does not have the recorded sha256"


def spoil_missing(path):
    (path / "state" / "counter.json").unlink()
    return "state/counter.json is missing"


def spoil_manifest_missing(path):
    (path / "manifest.json").unlink()
    return "manifest.json is missing"


def spoil_manifest_torn(path):
    file = path / "manifest.json"
    file.write_bytes(file.read_bytes()[:50])
    return "manifest.json is damaged"


def spoil_manifest_edited(path):
    file = path / "manifest.json"
    file.write_text(file.read_text().replace('"last_step": 1', '"last_step": 0'))
    return "does not match its own digest"


SPOILS = [
    spoil_truncated,
    spoil_flipped,
    spoil_missing,
    spoil_manifest_missing,
    spoil_manifest_torn,
    spoil_manifest_edited,
]


@pytest.mark.parametrize("spoil", SPOILS)
def test_damaged_checkpoint_is_passed_over_and_named(run, spoil):
    run.to(1)
    newer = run.to(2)
    why = spoil(newer)
    found = checkpoint.newest(run.folder)
    assert found.step == 1
    assert [item.path for item in found.skipped] == [newer] and why in found.skipped[0].why


def test_every_checkpoint_damaged_is_an_error_not_a_fresh_start(run):
    spoil_flipped(run.to(1))
    spoil_manifest_missing(run.to(2))
    with pytest.raises(UserError, match=r"no checkpoint is whole: step_2: .*; step_1: .*sha256"):
        checkpoint.newest(run.folder)


def test_unknown_manifest_format_is_named(run):
    path = run.to(1)
    body = json.loads((path / "manifest.json").read_text()) | {"format": 9}
    from hexad.contract.digest import digest

    body.pop("digest")
    (path / "manifest.json").write_text(json.dumps({**body, "digest": digest(body)}))
    assert "format 9; this Hexad reads 1" in checkpoint.scan(run.folder)[1][0].why


def test_same_step_again_replaces_the_checkpoint(run):
    run.to(2)
    run.part.weight = torch.full((4,), 7.0)
    run.write()
    assert names(run) == ["step_2"]
    found = checkpoint.newest(run.folder)
    other = Run(run.folder)
    checkpoint.resume(found, other.registry, other.journal)
    assert other.part.weight.tolist() == [7.0] * 4


def test_replaced_checkpoint_is_found_until_the_new_one_is_in_place(run):
    path = run.to(2)
    # The state between the two renames of a replacement.
    path.rename(path.with_name(".old-step_2"))
    shutil.copytree(path.with_name(".old-step_2"), path.with_name(".tmp-step_2"))
    found = checkpoint.newest(run.folder)
    assert (found.step, found.path.name) == (2, ".old-step_2")
    assert [item.path.name for item in found.skipped] == [".tmp-step_2"]
    other = Run(run.folder)
    checkpoint.resume(found, other.registry, other.journal)
    other.to(3)
    assert names(run) == [".old-step_2", "step_3"]
    other.to(4)
    assert names(run) == ["step_3", "step_4"]


def test_checkpoints_of_a_rewound_past_disappear(run):
    run.to(1)
    run.to(2)
    spoil_flipped(run.to(3))
    fresh = Run(run.folder)
    checkpoint.resume(checkpoint.newest(run.folder), fresh.registry, fresh.journal)
    assert fresh.part.steps == 2
    shutil.move(run.folder / "checkpoints/step_3", run.folder / "checkpoints/step_9")
    fresh.to(3)
    assert names(run) == ["step_2", "step_3"]


def test_store_is_merged_at_checkpoints(run):
    run.to(4)
    assert [p.path.name for p in run.store.parts()] == ["part-000000-000003.parquet"]


def test_full_disk_keeps_the_former_checkpoint(run, monkeypatch):
    run.to(1)
    run.step()

    def full(path):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoint, "sync_tree", full)
    with pytest.raises(UserError, match="cannot write checkpoint 2: No space left") as error:
        run.write()
    assert "free some disk space" in error.value.fix
    assert names(run) == ["step_1"] and checkpoint.newest(run.folder).step == 1


def test_full_disk_below_safetensors_is_told_alike(run):
    run.to(1)

    def save(folder):
        # How safetensors words a failed write. Never name a device here: it renames onto its path.
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    with pytest.raises(UserError, match="cannot write checkpoint 2: the disk is full"):
        checkpoint.write(run.folder, 2, save, run.registry, run.journal)
    assert names(run) == ["step_1"]


def test_other_errors_of_safetensors_are_not_blamed_on_the_disk(run):
    def save(folder):
        raise SafetensorError("I/O error: File too large (os error 27)")

    with pytest.raises(SafetensorError, match="too large"):
        checkpoint.write(run.folder, 1, save, run.registry, run.journal)


def test_failing_policy_saver_is_not_hidden(run):
    def broken(folder):
        raise RuntimeError("our own bug")

    with pytest.raises(RuntimeError, match="our own bug"):
        checkpoint.write(run.folder, 1, broken, run.registry, run.journal)
    assert names(run) == []
