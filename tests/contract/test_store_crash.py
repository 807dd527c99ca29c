"""The store keeps what was committed, through kills, full disks and damaged files."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from builders import episode
from hexad.contract import durable
from hexad.contract.crash import VARIABLE
from hexad.contract.faults import UserError
from hexad.contract.store import EMPTY, Store

TESTS = Path(__file__).parent.parent
SCRIPT = """
import sys
sys.path.insert(0, {tests!r})
from builders import episode
from hexad.contract.store import Store
store = Store({folder!r})
{body}
print("finished")
"""


def batch(step, count=2):
    return [episode(10 * step + i) for i in range(count)]


def run(folder, body, crash_at=None):
    """Run ``body`` on a store in another process; its return code and output."""
    text = SCRIPT.format(tests=str(TESTS), folder=str(folder), body=body)
    environment = {**os.environ, **({VARIABLE: crash_at} if crash_at else {})}
    return subprocess.run(
        [sys.executable, "-c", text], env=environment, capture_output=True, text=True, check=False
    )


def names(folder):
    return sorted(os.listdir(folder))


@pytest.fixture
def store(tmp_path):
    made = Store(tmp_path)
    for step in range(4):
        made.append(step, batch(step))
    return made


def test_crash_points_do_nothing_unless_named(tmp_path):
    done = run(tmp_path, "store.append(0, [episode()])", "store:mid-part:2")
    assert done.returncode == 0 and done.stdout == "finished\n", done.stderr
    assert Store(tmp_path).read() == [episode()]


@pytest.mark.parametrize("point", ["store:mid-part", "store:before-rename"])
def test_kill_during_append_loses_only_that_step(store, point):
    body = "store.append(4, [episode(40)])\nstore.append(5, [episode(50)])"
    died = run(store.folder, body, f"{point}:2")
    assert died.returncode == -signal.SIGKILL and died.stdout == ""
    assert names(store.folder)[0] == ".part-000005.parquet.tmp"
    before = [e for step in range(4) for e in batch(step)]
    assert store.last_step == 4
    assert store.read() == [*before, episode(40)]
    cut = store.truncate(4)
    assert cut.unfinished == (".part-000005.parquet.tmp",) and cut.episodes == 0
    assert not any(name.endswith(".tmp") for name in names(store.folder))
    store.append(5, [episode(50)])
    assert store.read() == [*before, episode(40), episode(50)]


def test_half_of_the_bytes_are_on_disk_at_mid_part(store):
    whole = store.append(4, batch(4)).stat().st_size
    run(store.folder, "store.append(5, [episode(50 + i) for i in range(2)])", "store:mid-part")
    torn = (store.folder / ".part-000005.parquet.tmp").stat().st_size
    assert 0.4 * whole < torn < 0.6 * whole


@pytest.mark.parametrize("point", ["store:mid-part", "store:before-rename"])
def test_kill_during_a_merge_changes_nothing(store, point):
    expected = store.read()
    assert run(store.folder, "store.compact()", point).returncode == -signal.SIGKILL
    assert store.read() == expected
    store.truncate(3)
    store.compact()
    assert names(store.folder) == ["part-000000-000003.parquet", "table.parquet"]
    assert store.read() == expected


@pytest.mark.parametrize("removed", range(5))
def test_kill_between_merge_and_removal_neither_doubles_nor_loses(store, removed):
    expected = store.read()
    singles = {p.path: p.path.read_bytes() for p in store.parts()}
    store.compact()
    for path, data in list(singles.items())[removed:]:
        path.write_bytes(data)
    assert store.read() == expected
    assert store.read([2]) == batch(2)
    assert store.count() == 8 and store.table().num_rows == 8 and store.last_step == 3
    assert store.truncate(3).episodes == 0
    assert names(store.folder) == ["part-000000-000003.parquet", "table.parquet"]
    assert store.read() == expected


def test_truncate_counts_what_it_drops_and_splits_merged_parts(store):
    store.compact()
    store.append(4, batch(4, 3))
    cut = store.truncate(1)
    assert (cut.episodes, cut.sampled_tokens) == (7, 35)
    assert names(store.folder) == ["part-000000-000001.parquet"]
    assert store.read() == batch(0) + batch(1)
    assert store.truncate(EMPTY).episodes == 4
    assert store.read() == [] and store.last_step == EMPTY


def test_kill_while_truncating_leaves_a_store_that_can_be_truncated_again(store):
    store.compact()
    died = run(store.folder, "store.truncate(1)", "store:before-rename")
    assert died.returncode == -signal.SIGKILL
    assert store.count() == 8
    assert store.truncate(1).episodes == 4
    assert store.read() == batch(0) + batch(1)


def test_kill_after_the_split_was_renamed_is_the_state_before(store):
    store.compact()
    merged = (store.folder / "part-000000-000003.parquet").read_bytes()
    store.truncate(1)
    (store.folder / "part-000000-000003.parquet").write_bytes(merged)
    assert store.count() == 8
    assert store.truncate(1).episodes == 4 and store.read() == batch(0) + batch(1)


def test_merging_keeps_few_files_and_every_episode(tmp_path):
    store = Store(tmp_path)
    for step in range(40):
        store.append(step, [episode(step)])
        if step % 4 == 3:
            store.compact()
    assert len(store.parts()) <= 4
    assert store.read() == [episode(step) for step in range(40)]


def test_large_parts_are_not_merged_again(store, monkeypatch):
    monkeypatch.setattr("hexad.contract.store._MERGE_BYTES", 10)
    store.compact()
    assert len(store.parts()) == 4


@pytest.mark.parametrize("damage", ["half", "empty", "garbage", "erased"])
def test_torn_last_part_is_named_and_only_set_aside_when_asked(store, damage):
    path = store.append(4, batch(4))
    data = path.read_bytes()
    middle = len(data) // 2
    spoiled = {
        "half": data[:middle],
        "empty": b"",
        "garbage": b"PAR1" + b"\x07" * 100,
        "erased": data[:100] + bytes(60) + data[160:],
    }[damage]
    path.write_bytes(spoiled)
    with pytest.raises(UserError, match="step 4 cannot be read") as error:
        store.read()
    assert error.value.where == str(path) and "--resume" in error.value.fix
    assert path.read_bytes() == spoiled, "reading must not repair"
    assert store.read(range(4)) == [e for step in range(4) for e in batch(step)]
    assert [e.where for e in store.check()] == [str(path)]
    cut = store.truncate(3)
    if damage != "erased":  # the columns that are counted may still be readable
        assert [p.name for p in cut.torn] == ["part-000004.parquet.torn"]
    assert store.check() == [] and store.last_step == 3
    assert store.read() == [e for step in range(4) for e in batch(step)]


def test_corrupt_part_in_the_middle_is_an_error_that_names_it(store):
    path = store.folder / "part-000001.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    for use in (store.read, store.compact, store.count, store.table):
        with pytest.raises(UserError) as error:
            use()
        assert error.value.where == str(path) and "restore" in error.value.fix
    assert store.truncate(3).torn == ()
    assert path.exists(), "a committed part is never set aside silently"


def test_torn_merged_part_is_not_cut_through(store):
    store.compact()
    path = store.folder / "part-000000-000003.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(UserError, match="steps 0 to 3 cannot be read"):
        store.truncate(1)
    assert path.exists()


def test_any_flipped_byte_is_noticed_or_harmless(tmp_path):
    store = Store(tmp_path)
    path = store.append(0, batch(0))
    data, noticed = path.read_bytes(), 0
    places = [*range(4, len(data), 97), *range(3500, 4000, 7)]
    for place in places:
        path.write_bytes(data[:place] + bytes([data[place] ^ 0x10]) + data[place + 1 :])
        try:
            assert store.read() == batch(0), f"byte {place} changed an episode silently"
        except UserError:
            noticed += 1
    assert noticed > len(places) / 2


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EROFS, errno.EFBIG])
def test_full_disk_leaves_the_former_state_whole(store, monkeypatch, code):
    expected, before = store.read(), names(store.folder)

    def full(descriptor):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(durable.os, "fsync", full)
    with pytest.raises(UserError, match=os.strerror(code)) as error:
        store.append(4, batch(4))
    assert "part-000004" in error.value.where and error.value.fix
    with pytest.raises(UserError):
        store.compact()
    assert names(store.folder) == before
    monkeypatch.undo()
    assert store.read() == expected
    store.append(4, batch(4))
    assert store.read() == expected + batch(4)


def test_a_failure_that_is_not_the_disks_is_not_blamed_on_it(store, monkeypatch):
    def bug(descriptor):
        raise OSError(errno.EBADF, "bad descriptor")

    monkeypatch.setattr(durable.os, "fsync", bug)
    with pytest.raises(OSError, match="bad descriptor"):
        store.append(4, batch(4))


def test_steps_only_grow(store):
    for step in (3, 0):
        with pytest.raises(ValueError, match="not after the last committed step 3"):
            store.append(step, batch(9))
    with pytest.raises(ValueError, match=r"no part holds the steps \[7\]"):
        store.read([2, 7])


def test_missing_folder_and_overlapping_parts_are_named(store, tmp_path):
    with pytest.raises(UserError, match="no folder of episodes"):
        Store(tmp_path / "nowhere").read()
    assert Store(tmp_path / "nowhere").last_step == EMPTY
    data = (store.folder / "part-000003.parquet").read_bytes()
    (store.folder / "part-000003-000005.parquet").write_bytes(data)
    (store.folder / "part-000002-000004.parquet").write_bytes(data)
    with pytest.raises(UserError, match="two parts hold step 3"):
        store.read()
