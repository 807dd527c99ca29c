import io
import threading
import time

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hexad.schedule import frame as frames
from hexad.schedule import messages
from hexad.schedule.backend import Inbox
from hexad.schedule.frame import Frame, FrameError
from hexad.schedule.messages import Beat, Finished, Loaded, Play, Publish
from hexad.schedule.weights import pack, unpack

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)  # fmt: skip


def beat(live=0):
    return Beat(
        live=live, waiting=0, version=0, loop_seconds=0.0, busy_seconds=1.0, rss_bytes=9, engine={}
    ).frame()


def said(number):
    return Finished(episode_id=str(number), lost=0).frame()


def test_a_frame_is_these_bytes():
    encoded = frames.encode(Frame({"kind": "stop"}, b"xyz"))
    assert encoded == b"HXF1\0\0\0\x0f\0\0\0\0\0\0\0\x03" + b'{"kind":"stop"}xyz'


@given(st.dictionaries(st.text(max_size=8), JSON), st.binary())
def test_what_is_written_is_read(head, body):
    frame, stream = Frame(head, body), io.BytesIO()
    frames.write(stream, frame)
    frames.write(stream, frame)
    assert frames.decode(frames.encode(frame)) == frame
    stream.seek(0)
    assert [frames.read(stream), frames.read(stream), frames.read(stream)] == [frame, frame, None]


@given(st.binary(min_size=1, max_size=200))
def test_junk_raises_a_frame_error_and_nothing_else(junk):
    with pytest.raises(FrameError):
        frames.decode(junk)
    with pytest.raises(FrameError):
        frames.read(io.BytesIO(junk))


@pytest.mark.parametrize("cut", [1, 15, 16, 20, 33])
def test_a_torn_frame_is_told_and_not_waited_for(cut):
    encoded = frames.encode(Frame({"kind": "stop"}, b"xyz"))
    assert len(encoded) == 34
    with pytest.raises(FrameError):
        frames.read(io.BytesIO(encoded[:cut]))
    with pytest.raises(FrameError):
        frames.decode(encoded[:cut])


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"HXF0\0\0\0\2" + b"\0" * 8 + b"{}", "junk where a frame should begin"),
        (b"HXF1\xff\xff\xff\xff" + b"\0" * 8, "a header of 4294967295 bytes"),
        (b"HXF1\0\0\0\2" + b"\xff" * 8 + b"{}", "a body of 18446744073709551615 bytes"),
        (b"HXF1\0\0\0\2" + b"\0" * 8 + b"[]", "is a list"),
        (b"HXF1\0\0\0\x0a" + b"\0" * 8 + b'{"a": NaN}', "NaN is not"),
        (b"HXF1\0\0\0\2" + b"\0" * 8 + b"{}more", "of 18 bytes came as 22"),
    ],
    ids=["other magic", "long head", "long body", "no object", "NaN", "more bytes"],
)
def test_a_bad_frame_is_refused_before_it_is_believed(data, told):
    with pytest.raises(FrameError, match=told):
        frames.decode(data)


def test_a_header_that_is_no_json_cannot_be_sent():
    for head in ({"a": float("nan")}, {"a": b"bytes"}, {"a": "x" * 2**20}):
        with pytest.raises(FrameError):
            frames.encode(Frame(head))


def test_a_stream_that_takes_a_part_gets_the_rest():
    class Slow(io.BytesIO):
        def write(self, data):
            return super().write(bytes(data[:7]))

    stream = Slow()
    frames.write(stream, Frame({"kind": "stop"}, b"0123456789" * 3))
    stream.seek(0)
    assert frames.read(stream) == Frame({"kind": "stop"}, b"0123456789" * 3)


def test_messages_cross_as_they_are_and_wrong_ones_are_refused():
    play = Play(
        index=3,
        task_id="t",
        group_id="v0-3",
        member=1,
        seed=0,
        environment="e",
        episode_id="v0-3-1",
    )
    assert messages.read(frames.decode(frames.encode(play.frame(b"log")))) == play
    good = dict(Publish(version=1, lineage="w").frame().head)
    assert messages.read(Frame(good)) == Publish(version=1, lineage="w")
    for wrong in (
        {"kind": "nothing"}, {}, {"kind": ["publish"]}, good | {"version": "1"},
        good | {"version": -1}, good | {"more": 1}, {"kind": "publish", "version": 1},
    ):  # fmt: skip
        with pytest.raises(FrameError):
            messages.read(Frame(wrong))


def test_weights_keep_every_bit_also_where_tensors_share_memory():
    base = torch.tensor([1.5, float("nan"), -0.0])
    weights = {"a": base, "b": base, "c": base.view(3, 1), "d": torch.arange(3).to(torch.bfloat16)}
    found = unpack(pack(weights))
    assert found.keys() == weights.keys()
    for name, tensor in weights.items():
        assert found[name].dtype == tensor.dtype and found[name].shape == tensor.shape
        assert torch.equal(found[name].view(torch.uint8), tensor.contiguous().view(torch.uint8))
    with pytest.raises(FrameError):
        unpack(b"junk")


def test_an_inbox_keeps_order_one_beat_each_and_the_death_last():
    inbox = Inbox()
    first, second = inbox.line(0), inbox.line(1)
    for live in range(3):
        first.put(beat(live))
    second.put(beat(7))
    first.put(said(1))
    second.end()
    second.end()
    second.put(beat(8))
    second.put(said(9))
    first.put(said(2))
    assert inbox.take(0) == [(0, beat(2)), (0, said(1)), (1, None), (0, said(2))]
    assert inbox.take(0) == []
    inbox.line(1).put(said(3))
    second.put(said(9))
    assert inbox.take(0) == [(1, said(3))]


def waiting(line, frame):
    """A thread that waits for room to deliver ``frame``."""
    writer = threading.Thread(target=line.put, args=(frame,), daemon=True)
    writer.start()
    deadline = time.monotonic() + 5
    while not line.waits and time.monotonic() < deadline:
        time.sleep(0.001)
    assert line.waits
    return writer


def test_a_full_inbox_holds_its_writer_back_and_neither_beats_nor_deaths():
    inbox = Inbox(room=2)
    line, other = inbox.line(0), inbox.line(1)
    line.put(said(1))
    line.put(said(2))
    writer = waiting(line, said(3))
    other.put(beat())
    other.end()
    time.sleep(0.05)
    assert writer.is_alive() and inbox.silent(0) == 0.0 < inbox.silent(1)
    assert inbox.take(0) == [(0, said(1)), (0, said(2)), (1, None)]
    writer.join(5)
    assert not writer.is_alive() and inbox.take(0) == [(0, said(3))]


def test_nothing_of_a_worker_follows_its_end_also_not_what_waited_for_room():
    inbox = Inbox(room=1)
    line = inbox.line(0)
    line.put(said(1))
    writer = waiting(line, said(2))
    line.end()
    writer.join(5)
    assert not writer.is_alive()
    assert inbox.take(0) == [(0, said(1)), (0, None)] and inbox.take(0) == []


def test_a_closed_inbox_lets_its_writers_go():
    inbox = Inbox(room=0)
    writer = waiting(inbox.line(0), Loaded(version=0).frame())
    inbox.close()
    writer.join(5)
    assert not writer.is_alive() and inbox.take(0) == []


def test_silence_counts_from_the_last_word():
    inbox = Inbox()
    line = inbox.line(0)
    time.sleep(0.05)
    assert inbox.silent(0) >= 0.05
    line.put(beat())
    assert inbox.silent(0) < 0.05
