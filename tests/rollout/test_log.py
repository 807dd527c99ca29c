"""The log of an episode as bytes and as a file."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from hexad.contract.ending import Ending, EndingKind
from hexad.contract.faults import ContractViolation, FaultRecord, UserError
from hexad.contract.messages import Message, Role, ToolCall
from hexad.contract.reward import Owner, OwnerKind, Reward
from hexad.contract.segment import Span, SpanKind
from hexad.contract.support import Support
from hexad.environments.protocol import Step
from hexad.policy.engine import Completion, Stop
from hexad.policy.render import Rendered
from hexad.rollout.entries import (
    SCHEMA,
    VERSION_KEY,
    Begun,
    Left,
    Restarted,
    Sampled,
    Seated,
    Spent,
    State,
    Stepped,
    to_batch,
)
from hexad.rollout.log import EpisodeLog, last_attempt

FAULT = FaultRecord("tool", "ToolFault", "broke\n\u20ac", 0)
REWARD = Reward("env", 0.1 + 0.2, Owner(OwnerKind.SPAN, 3, 1))
MESSAGES = (
    Message(Role.TOOL, "n\u00e9e", "look"),
    Message(Role.ASSISTANT, "", None, (ToolCall("look", {"a": [1, None]}, "bad", "{"),)),
)


def sampled(*ids, version=0, partial=False, support=None):
    logprobs = np.array([-np.float32(i) / 7 for i in ids], np.float32)
    versions = np.full(len(ids), version, np.int32)
    stop = Stop.LENGTH if partial else Stop.TOKEN
    made = Completion(np.array(ids, np.int32), logprobs, versions, stop, support)
    return Sampled(made, 0.25, partial, 1.5)


ENTRIES = [
    Seated(1e9),
    Begun(
        "g0-0",
        1,
        Rendered(np.array([5, 6], np.int32), (Span(SpanKind.USER, "", 0, 0, 2),)),
        "initial",
        State("state", b"\x00\xff", True),
        Spent((FAULT,), 7, 2, 0.5, 0.25, 3.0),
        0.125,
    ),
    sampled(1, 2, partial=True, support=Support.of([[1, 3], [2]])),
    sampled(3, version=4, support=Support.of([[3, 9]])),
    Stepped(
        Step(MESSAGES, Ending.of(EndingKind.TRUNCATED_TIME, "late"), (REWARD,), 2, 0.1),
        State(None, None, False),
        2.0,
    ),
    Left((FAULT,), 2.5),
]


def written(path=None):
    log = EpisodeLog.create(path)
    for entry in ENTRIES:
        log.append(entry)
    return log


def stored(entries):
    """Every bit of ``entries``."""
    return [to_batch(entry).serialize().to_pybytes() for entry in entries]


def test_a_log_gives_back_every_bit_of_its_entries():
    log = written()
    again = EpisodeLog.read(log.data())
    assert stored(again.entries()) == stored(ENTRIES)
    _, begun, first, second, stepped, left = again.entries()
    assert stepped == ENTRIES[4] and left == ENTRIES[5]
    assert (begun.spent, begun.state, begun.prompt.spans) == (
        ENTRIES[1].spent,
        ENTRIES[1].state,
        ENTRIES[1].prompt.spans,
    )
    assert first.completion.support == ENTRIES[2].completion.support and first.partial
    assert second.completion.logprobs.tobytes() == ENTRIES[3].completion.logprobs.tobytes()
    assert not second.completion.ids.flags.writeable
    assert again.data() == log.data()


def test_a_log_counts_its_tokens_versions_and_sittings():
    for log in (written(), EpisodeLog.read(written().data())):
        assert (log.sampled_tokens, log.newest_version) == (3, 4)
        assert (log.started, log.sittings) == (1e9, 1)
    log.append(sampled(9, version=2))
    assert log.newest_version == 4
    log.append(Restarted())
    log.append(sampled(5, 6))
    again = EpisodeLog.read(log.data())
    assert (again.sampled_tokens, again.lost_tokens) == (6, 4) and written().lost_tokens == 0
    assert last_attempt(log.entries()) == [] and len(last_attempt(written().entries())) == 5
    empty = EpisodeLog.create()
    assert (empty.sampled_tokens, empty.newest_version, empty.started) == (0, -1, None)


def test_a_stream_that_was_cut_anywhere_is_read_up_to_its_last_whole_entry():
    data = written().data()
    ends = [len(EpisodeLog.create().data())]
    for entry in ENTRIES:
        ends.append(ends[-1] + len(to_batch(entry).serialize()))
    assert ends[-1] == len(data)
    for cut in range(len(data) + 1):
        whole = sum(end <= cut for end in ends[1:])
        assert stored(EpisodeLog.read(data[:cut]).entries()) == stored(ENTRIES[:whole])


def test_any_arrow_reader_opens_a_log():
    table = pa.ipc.open_stream(written().data()).read_all()
    names = ["seated", "begun", "sampled", "sampled", "stepped", "left"]
    assert table.column("kind").to_pylist() == names


def test_a_file_goes_on_where_it_was_cut(tmp_path):
    path = tmp_path / "e.arrows"
    log = written(path)
    assert path.read_bytes() == log.data()
    log.close()
    log.close()
    with pytest.raises(ContractViolation, match="closed"):
        log.append(ENTRIES[0])
    torn = log.data()[:-3]
    path.write_bytes(torn)
    again = EpisodeLog.read(path.read_bytes(), path)
    assert len(again.entries()) == len(ENTRIES) - 1
    again.append(ENTRIES[-1])
    assert path.read_bytes() == again.data() == log.data()
    again.close()
    assert EpisodeLog.create(path).entries() == [] and os.listdir(tmp_path) == ["e.arrows"]


CHILD = """
import sys
sys.path[:0] = ["tests", "tests/rollout"]
from pathlib import Path
from test_log import written
written(Path(sys.argv[1]))
"""


@pytest.mark.parametrize(("point", "whole"), [("log:mid-entry:4", 3), ("log:entry:4", 4)])
def test_an_entry_is_in_the_file_or_never_was_when_the_process_dies(tmp_path, point, whole):
    path = tmp_path / "e.arrows"
    root = Path(__file__).parents[2]
    environment = os.environ | {"HEXAD_CRASH_AT": point}
    done = subprocess.run([sys.executable, "-c", CHILD, str(path)], cwd=root, env=environment)
    assert done.returncode == -signal.SIGKILL
    data = path.read_bytes()
    assert stored(EpisodeLog.read(data).entries()) == stored(ENTRIES[:whole])
    assert written().data().startswith(data)


def test_what_is_no_log_is_refused():
    data = written().data()
    other = pa.schema([("a", pa.int64())]).serialize().to_pybytes()
    newer = SCHEMA.with_metadata({VERSION_KEY: b"2"}).serialize().to_pybytes()
    junk = {
        "no Arrow message at byte 0": b"nothing of the kind",
        "of no version": other,
        "of version 2": newer,
        f"at byte {len(data)}": data + b"\0" * 16,
        "Arrow message at byte 0": data[:8] + b"\xff" * (len(data) - 8),
        "cannot be read": data.replace(b'"attempt"', b'"attempX"'),
    }
    for what, bad in junk.items():
        with pytest.raises(UserError, match=what) as error:
            EpisodeLog.read(bad)
        assert error.value.fix


def test_a_full_disk_is_told_as_one(tmp_path, monkeypatch):
    log = EpisodeLog.create(tmp_path / "e.arrows")
    monkeypatch.setattr(log, "_file", open("/dev/full", "ab", buffering=0))
    with pytest.raises(UserError, match="No space left") as error:
        log.append(ENTRIES[0])
    assert error.value.where.endswith("e.arrows")
    with pytest.raises(UserError, match="cannot write the log"):
        monkeypatch.setattr(Path, "replace", refuse)
        EpisodeLog.create(tmp_path / "f.arrows")


def refuse(*_):
    raise PermissionError(13, "Permission denied")


def test_what_has_no_stored_form_is_not_recorded_at_all():
    log = EpisodeLog.create()
    odd = Message(Role.ASSISTANT, "", None, (ToolCall("look", {"a": object()}),))
    with pytest.raises(TypeError):
        log.append(Stepped(Step((odd,)), State()))
    assert log.entries() == [] and log.data() == EpisodeLog.create().data()
