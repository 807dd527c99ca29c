"""What is stored comes back bit for bit, through Parquet and through Arrow IPC."""

import shutil
import struct
from dataclasses import fields, replace

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from builders import episode, segment, support_of
from fixtures.episodes import (
    BAD,
    CUT,
    DEMONSTRATION,
    GOOD,
    GUARDED,
    STORE_V1,
    STORE_V2,
    STORE_V3,
    STORE_V4,
)
from hexad.contract.arrow import SCHEMA, from_ipc, from_table, to_ipc, to_table
from hexad.contract.ending import Ending, EndingKind
from hexad.contract.episode import Actor, Costs, Episode, Prefix, Times
from hexad.contract.faults import FaultRecord, UserError
from hexad.contract.provenance import PARTS, Provenance
from hexad.contract.reward import Owner, OwnerKind, Reward
from hexad.contract.segment import Segment, SegmentKind, Span, SpanKind
from hexad.contract.store import Store
from hexad.contract.support import Support
from hexad.contract.task import Split
from hexad.contract.verdict import Verdict, VerdictStatus

I32 = st.integers(-(2**31), 2**31 - 1)
I64 = st.integers(-(2**63), 2**63 - 1)
COUNT = st.integers(0, 2**40)
F32_BITS = st.integers(0, 2**32 - 1)
F64 = st.floats(allow_nan=True, allow_infinity=True)
TEXT = st.text(max_size=8)


@st.composite
def segments(draw):
    count = draw(st.integers(0, 6))

    def array(elements, dtype):
        return np.array(draw(st.lists(elements, min_size=count, max_size=count)), dtype)

    def floats():
        return array(F32_BITS, np.uint32).view(np.float32)

    sets = st.lists(st.lists(I32, max_size=3), max_size=count)
    span = st.builds(Span, st.sampled_from(SpanKind), TEXT, I32, I32, I32)
    return Segment(
        ids=array(I32, np.int32),
        action=array(st.booleans(), np.bool_),
        weight=floats(),
        logprob=floats(),
        version=array(I32, np.int32),
        turn=array(I32, np.int32),
        spans=tuple(draw(st.lists(span, max_size=3))),
        kind=draw(st.sampled_from(SegmentKind)),
        parent=draw(st.none() | I64),
        origin=draw(st.none() | TEXT),
        agent=draw(st.none() | TEXT),
        support=draw(st.none() | sets.map(support_of)),
    )


PROVENANCES = st.builds(
    Provenance,
    **dict.fromkeys(PARTS, TEXT),
    versions=st.lists(st.tuples(I64, TEXT), max_size=2).map(tuple),
)
REWARDS = st.builds(Reward, TEXT, F64, st.builds(Owner, st.sampled_from(OwnerKind), I64, I64))
EPISODES = st.builds(
    Episode,
    episode_id=TEXT,
    task_id=TEXT,
    group_id=TEXT,
    member=I64,
    split=st.sampled_from(Split),
    environment=TEXT,
    initial_state=TEXT,
    seed=st.integers(0, 2**64 - 1),
    segments=st.lists(segments(), max_size=3).map(tuple),
    ending=st.builds(Ending, st.sampled_from(EndingKind), st.booleans(), st.booleans(), TEXT),
    provenance=PROVENANCES,
    actor=st.sampled_from(Actor),
    rewards=st.lists(REWARDS, max_size=2).map(tuple),
    verdict=st.none() | st.builds(Verdict, st.sampled_from(VerdictStatus), st.none() | F64, TEXT),
    attempt=I64,
    faults=st.lists(st.builds(FaultRecord, TEXT, TEXT, TEXT, I64), max_size=2).map(tuple),
    costs=st.builds(Costs, *[COUNT] * len(fields(Costs))),
    times=st.builds(Times, *[F64] * len(fields(Times))),
    prefix=st.none() | st.builds(Prefix, TEXT, TEXT, I64),
)


def bits(value):
    """``value`` with every float as its 64 bits, so that NaN compares and 0.0 is not -0.0."""
    if isinstance(value, float):
        return struct.pack(">d", value)
    if isinstance(value, tuple):
        return tuple(bits(item) for item in value)
    if hasattr(value, "__dataclass_fields__") and not isinstance(value, Segment):
        return (type(value), *(bits(getattr(value, f.name)) for f in fields(value)))
    return (type(value), value) if not isinstance(value, Segment) else value


def same(left, right):
    return [bits(e) for e in left] == [bits(e) for e in right]


quick = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
)


@quick
@given(st.lists(EPISODES, max_size=3))
def test_ipc_returns_every_bit(episodes):
    assert same(from_ipc(to_ipc(episodes)), episodes)


@quick
@given(st.lists(EPISODES, max_size=3), st.lists(EPISODES, max_size=3))
def test_store_returns_every_bit_before_and_after_a_merge(tmp_path_factory, first, second):
    store = Store(tmp_path_factory.mktemp("store"))
    store.append(0, first)
    store.append(1, second)
    assert same(store.read(), first + second)
    store.compact()
    assert [p.path.name for p in store.parts()] == ["part-000000-000001.parquet"]
    assert same(store.read(), first + second)
    assert same(store.read([1]), second)


def test_equal_zeros_and_nans_of_different_bits_stay_apart(tmp_path):
    # Whatever encoding the Parquet writer picks (dictionaries compare by value) must keep them.
    raw = np.array([0x7FC00000, 0x7FC00001, 0xFFC00000, 0x80000000, 0x00000000] * 3, np.uint32)
    odd = segment((("text", 15),), logprob=0.0)
    odd = replace(odd, logprob=raw.view(np.float32), weight=raw[::-1].view(np.float32))
    store = Store(tmp_path)
    store.append(0, [episode(segments=(odd,))])
    back = store.read()[0].segments[0]
    assert back.logprob.view(np.uint32).tolist() == raw.tolist()
    assert back.weight.view(np.uint32).tolist() == raw[::-1].tolist()


def test_arrays_come_back_read_only():
    (back,) = from_ipc(to_ipc([episode()]))
    for name in ("ids", "action", "weight", "logprob", "version", "turn"):
        array = getattr(back.segments[0], name)
        assert array.dtype == getattr(segment(), name).dtype
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_a_slice_of_a_table_reads_its_own_rows():
    episodes = list(GOOD.values())
    table = to_table(episodes, 3)
    assert same(from_table(table.slice(4, 3)), episodes[4:7])
    assert same(from_table(table.slice(2, 0)), [])


def test_bad_episodes_are_stored_as_they_are(tmp_path):
    # Refused episodes are evidence too; a ragged segment is stored without repair.
    episodes = [case.episode for case in BAD.values()]
    store = Store(tmp_path)
    store.append(0, episodes)
    assert same(store.read(), episodes)


def test_files_of_schema_version_1_stay_readable():
    assert same(Store(STORE_V1).read(), [*GOOD.values(), DEMONSTRATION])
    assert same(Store(STORE_V1).read([1]), [DEMONSTRATION])


@pytest.mark.parametrize("folder", [STORE_V2, STORE_V3])
def test_files_of_schema_versions_2_and_3_stay_readable(folder):
    assert same(Store(folder).read(), [*CUT.values(), *GOOD.values()])


def test_files_of_schema_version_4_stay_readable():
    assert same(Store(STORE_V4).read(), [GUARDED, GOOD["solved"]])


def test_parts_of_both_versions_live_in_one_store(tmp_path):
    folder = shutil.copytree(STORE_V1, tmp_path / "episodes")
    store = Store(folder)
    old = store.read()
    store.append(2, list(CUT.values()))
    assert same(store.read(), [*old, *CUT.values()])
    assert store.table().num_rows == len(old) + len(CUT)
    store.truncate(1)
    assert same(store.read(), old)
    store.append(2, list(CUT.values()))
    store.compact()
    assert len(store.parts()) == 1 and store.check() == []
    assert same(store.read(), [*old, *CUT.values()])
    assert store.parts()[0].read().schema.metadata[b"hexad_schema"] == b"5"


def test_a_slice_of_an_old_table_is_upgraded_too():
    old = pq.read_table(STORE_V1 / "part-000000.parquet")
    assert same(from_table(old.slice(3, 4)), list(GOOD.values())[3:7])


def test_supports_are_told_apart_by_every_bit():
    base = support_of([[1, 2], [], [3]])
    assert base == support_of([[1, 2], [], [3]])
    for other in ([[1], [2], [3]], [[1, 2], [3], []], [[1, 2], [], [4]], [[1, 2], [3]]):
        assert base != support_of(other)
    assert Support.joined([support_of([[1, 2], []]), Support.empty(0), support_of([[3]])]) == base
    assert Support.joined([]) == Support.empty(0) != Support.empty(1)
    part = replace(segment(), support=base)
    assert part != segment() and part == replace(segment(), support=base)
    for array in (base.ids, base.offsets):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


@pytest.mark.parametrize("offsets", [[], [1, 3], [0, 2], [0, 2, 1, 3], [0, 4]])
def test_offsets_that_do_not_cut_the_ids_are_refused(offsets):
    with pytest.raises(ValueError, match="do not cut 3 ids"):
        Support(np.array([1, 2, 3], np.int32), np.array(offsets, np.int64))


def test_unknown_schema_version_is_refused(tmp_path):
    table = to_table([episode()]).replace_schema_metadata({b"hexad_schema": b"99"})
    pq.write_table(table, tmp_path / "part-000000.parquet")
    with pytest.raises(UserError, match=r"schema version 99; this Hexad reads 1 to 5") as error:
        Store(tmp_path).read()
    assert error.value.where.endswith("part-000000.parquet")
    with pytest.raises(UserError, match="schema version 99"):
        from_table(table)


def test_foreign_files_are_refused(tmp_path):
    pq.write_table(pa.table({"a": [1]}), tmp_path / "part-000000.parquet")
    with pytest.raises(UserError, match="names no schema version"):
        Store(tmp_path).read()
    renamed = to_table([episode()]).rename_columns(
        ["x" if n == "seed" else n for n in SCHEMA.names]
    )
    renamed = renamed.replace_schema_metadata(SCHEMA.metadata)
    pq.write_table(renamed, tmp_path / "part-000000.parquet")
    with pytest.raises(UserError, match="columns are not those"):
        Store(tmp_path).read()


def test_a_seed_that_does_not_fit_is_an_error_not_another_seed():
    with pytest.raises((OverflowError, pa.ArrowInvalid)):
        to_table([episode(seed=2**64)])
    with pytest.raises((OverflowError, pa.ArrowInvalid)):
        to_table([episode(seed=-1)])


@pytest.fixture
def filled(tmp_path):
    store = Store(tmp_path / "episodes")
    for step in range(4):
        wrong = replace(GOOD["failed"], episode_id=f"w{step}")
        store.append(step, [episode(number=step), wrong])
    return store


def test_duckdb_reads_the_parts(filled):
    query = f"""
        SELECT step, count(*), avg(verdict.score), sum(len(segments[1].ids)),
               sum(list_sum([a::int for a in segments[1].action]))
        FROM '{filled.folder}/part-*.parquet' GROUP BY step ORDER BY step"""
    expected = [(step, 2, 0.5, 28, 10) for step in range(4)]
    assert duckdb.sql(query).fetchall() == expected
    filled.compact()
    assert duckdb.sql(query).fetchall() == expected


def test_datasets_opens_the_parts_and_an_empty_step_between(filled, tmp_path):
    datasets = pytest.importorskip("datasets")
    filled.append(4, [])
    filled.append(5, [episode(5)])
    rows = datasets.load_dataset(
        "parquet",
        data_files=str(filled.folder / "part-*.parquet"),
        cache_dir=str(tmp_path / "cache"),
        split="train",
    )
    assert len(rows) == 9
    assert rows[0]["segments"][0]["ids"] == segment().ids.tolist()


def test_episode_table_is_flat_and_complete(filled):
    assert filled.table().num_rows == 8
    filled.compact()
    stored = pq.read_table(filled.folder / "table.parquet")
    assert stored.num_rows == 8 and "segments" not in stored.column_names
    row = duckdb.sql(
        "SELECT episode_id, ending_kind, verdict_status, costs_sampled_tokens, "
        f"provenance_tokenizer FROM '{filled.folder}/table.parquet' LIMIT 1"
    ).fetchall()
    assert row[0] == ("episode-0", "terminal", "correct", 5, "tokenizer-1")
    filled.append(4, [episode(9)])
    assert filled.table().num_rows == 9
