"""Episodes as Arrow tables: the one stored form, in Parquet parts and across process borders.

One row an episode; tokens nest as lists of a segment struct, so that ``duckdb`` and ``datasets``
open the files directly. Floats keep every bit, NaN payloads included.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hexad.contract.ending import Ending, EndingKind
from hexad.contract.episode import SCHEMA_VERSION, Actor, Costs, Episode, Prefix, Times
from hexad.contract.faults import FaultRecord, UserError
from hexad.contract.provenance import PARTS, Provenance
from hexad.contract.refusal import Refusal, RefusalReason
from hexad.contract.reward import Gate, Levels, Owner, OwnerKind, Reward
from hexad.contract.segment import Segment, SegmentKind, Span, SpanKind
from hexad.contract.support import Support
from hexad.contract.task import Split
from hexad.contract.verdict import Verdict, VerdictStatus

VERSION_KEY = b"hexad_schema"
"""Metadata key that holds the schema version in decimal."""


def _required(**types: pa.DataType) -> list[pa.Field]:
    return [pa.field(name, kind, nullable=False) for name, kind in types.items()]


def _list(kind: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", kind, nullable=False))


_OWNER = pa.struct(_required(kind=pa.string(), index=pa.int64(), segment=pa.int64()))
_REWARD = pa.struct(_required(component=pa.string(), value=pa.float64(), owner=_OWNER))
_FAULT = pa.struct(
    _required(boundary=pa.string(), kind=pa.string(), message=pa.string(), attempt=pa.int64())
)
_REFUSAL = pa.struct(
    _required(turn=pa.int64(), call=pa.int64())
    + _required(tool=pa.string(), reason=pa.string(), detail=pa.string())
)
_LEVELS = pa.struct(_required(name=pa.string(), values=_list(pa.float64())))
_TIMES = [f.name for f in fields(Times)]
_SPAN = pa.struct(
    _required(kind=pa.string(), name=pa.string(), turn=pa.int64(), start=pa.int64(), end=pa.int64())
)
_VERSION = pa.struct(_required(version=pa.int64(), digest=pa.string()))
_TOKENS: dict[str, pa.DataType] = {
    "ids": pa.int32(),
    "action": pa.bool_(),
    "weight": pa.float32(),
    "logprob": pa.float32(),
    "version": pa.int32(),
    "turn": pa.int32(),
}
_SUPPORT: dict[str, pa.DataType] = {
    "support_ids": _list(pa.int32()),
    "support_offsets": _list(pa.int64()),
}
_SEGMENT_1 = [
    *_required(**{name: _list(kind) for name, kind in _TOKENS.items()}),
    *_required(spans=_list(_SPAN), kind=pa.string()),
    pa.field("parent", pa.int64()),
    pa.field("origin", pa.string()),
    pa.field("agent", pa.string()),
]
_SEGMENT = pa.struct([*_SEGMENT_1, *(pa.field(name, kind) for name, kind in _SUPPORT.items())])
_COLUMNS: list[pa.Field] = [
    pa.field("step", pa.int64()),
    *_required(episode_id=pa.string(), task_id=pa.string(), group_id=pa.string()),
    *_required(member=pa.int64(), split=pa.string(), environment=pa.string()),
    *_required(initial_state=pa.string(), states=_list(pa.string())),
    *_required(seed=pa.uint64(), actor=pa.string()),
    *_required(attempt=pa.int64()),
    pa.field(
        "ending",
        pa.struct(
            _required(kind=pa.string(), terminated=pa.bool_(), truncated=pa.bool_())
            + _required(reason=pa.string())
        ),
        nullable=False,
    ),
    pa.field(
        "verdict",
        pa.struct(
            [
                pa.field("status", pa.string(), nullable=False),
                pa.field("score", pa.float64()),
                pa.field("evidence", pa.string(), nullable=False),
            ]
        ),
    ),
    *_required(rewards=_list(_REWARD), faults=_list(_FAULT)),
    *_required(refusals=_list(_REFUSAL), signals=_list(_LEVELS)),
    pa.field("gate", pa.struct(_required(reward=pa.float64(), reason=pa.string()))),
    *_required(stratum=pa.string()),
    pa.field("prefix", pa.struct(_required(of=pa.string(), group=pa.string(), turns=pa.int64()))),
    *_required(
        costs=pa.struct(_required(**{f.name: pa.int64() for f in fields(Costs)})),
        times=pa.struct(_required(**dict.fromkeys(_TIMES, pa.float64()))),
        provenance=pa.struct(
            _required(**{part: pa.string() for part in PARTS}) + _required(versions=_list(_VERSION))
        ),
        segments=_list(_SEGMENT),
    ),
]
SCHEMA = pa.schema(_COLUMNS, metadata={VERSION_KEY: str(SCHEMA_VERSION)})
"""Columns of a part. ``step`` is null outside a store, supports for the full vocabulary."""
# Looked up once: Arrow makes a new object for every field that is asked for.
_TYPES = {field.name: field.type for field in _COLUMNS}
_PARTS = list(_SEGMENT)
_PART_TYPES = {field.name: field.type for field in _PARTS}
_SPAN_FIELDS = list(_SPAN)
_ADDED = ((3, "refusals"), (3, "signals"), (3, "gate"), (4, "stratum"), (5, "prefix"))
"""Columns behind ``faults``, in order, and since when."""


def _columns(version: int) -> list[pa.Field]:
    """The columns of ``version``, from 3 on; in earlier ones some had another form."""
    later = {name for since, name in _ADDED if since > version}
    return [field for field in _COLUMNS if field.name not in later]


_TIMES_2 = pa.struct(_required(**dict.fromkeys(_TIMES[:-1], pa.float64())))
_COLUMNS_2 = [
    pa.field("times", _TIMES_2, False) if field.name == "times" else field for field in _columns(2)
]
_OLDER = {
    1: pa.schema(
        [
            *(field for field in _COLUMNS_2[:-1] if field.name != "states"),
            pa.field("segments", _list(pa.struct(_SEGMENT_1)), False),
        ]
    ),
    2: pa.schema(_COLUMNS_2),
    **{version: pa.schema(_columns(version)) for version in (3, 4)},
}
"""The columns of earlier schema versions; their files are read, and rewritten in the new form."""


def to_table(episodes: Sequence[Episode], step: int | None = None) -> pa.Table:
    """Table of ``episodes`` in order, all stamped with ``step``."""
    facts: dict[str, list[Any]] = {name: [] for name in _TYPES if name not in ("step", "segments")}
    for episode in episodes:
        for name, value in _facts(episode).items():
            facts[name].append(value)
    columns = {name: pa.array(rows, _TYPES[name]) for name, rows in facts.items()}
    columns["step"] = pa.array([step] * len(episodes), pa.int64())
    columns["segments"] = _segment_column([episode.segments for episode in episodes])
    return pa.Table.from_arrays([columns[name] for name in _TYPES], schema=SCHEMA)


def from_table(table: pa.Table, where: str = "") -> list[Episode]:
    """Episodes of ``table`` in row order. Raises ``UserError`` for a foreign schema."""
    require_schema(table.schema, where)
    whole = upgraded(table).combine_chunks()
    facts = whole.drop_columns(["step", "segments"]).to_pylist()
    columns = whole.column("segments").chunks
    segments = [row for chunk in columns for row in _segment_rows(chunk)]
    return [_episode(row, parts) for row, parts in zip(facts, segments, strict=True)]


def to_ipc(episodes: Sequence[Episode]) -> bytes:
    """Episodes as the bytes of an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SCHEMA) as writer:
        writer.write_table(to_table(episodes))
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def from_ipc(data: bytes) -> list[Episode]:
    """Inverse of :func:`to_ipc`. Raises ``UserError`` for a foreign schema."""
    with pa.ipc.open_stream(data) as reader:
        return from_table(reader.read_all(), "Arrow IPC stream")


def require_schema(schema: pa.Schema, where: str) -> None:
    """Raise ``UserError`` unless ``schema`` is that of this version of Hexad."""
    found = (schema.metadata or {}).get(VERSION_KEY)
    if found is None:
        raise UserError(
            "not a file of Hexad episodes: it names no schema version",
            where=where,
            fix="move it out of the episodes folder",
        )
    expected = {str(v).encode(): old for v, old in (_OLDER | {SCHEMA_VERSION: SCHEMA}).items()}
    if found not in expected:
        raise UserError(
            f"episodes of schema version {found.decode()}; this Hexad reads 1 to {SCHEMA_VERSION}",
            where=where,
            fix="use the release of Hexad that wrote them",
        )
    if not schema.equals(expected[found]):
        raise UserError(
            f"the columns are not those of schema version {found.decode()}",
            where=where,
            fix="restore the file; something other than Hexad rewrote it",
        )


def upgraded(table: pa.Table) -> pa.Table:
    """``table`` of any readable schema version, or some columns of it, in the present form."""
    metadata = dict(table.schema.metadata)
    if (version := int(metadata[VERSION_KEY])) == SCHEMA_VERSION:
        return table
    if version == 1 and "segments" in table.column_names:
        chunks = [_with_supports(chunk) for chunk in table.column("segments").chunks]
        column = pa.chunked_array(chunks, SCHEMA.field("segments").type)
        place = table.column_names.index("segments")
        table = table.set_column(place, SCHEMA.field("segments"), column)
    if version == 1 and "initial_state" in table.column_names:  # nobody recorded the turns' states
        table = _with_nothing(table, "states", after="initial_state")
    if (last := "faults") in table.column_names:
        for since, name in _ADDED:
            if since > version:
                table = _with_nothing(table, name, after=last)
            last = name
    if version < 3 and "times" in table.column_names:
        field, place = SCHEMA.field("times"), table.column_names.index("times")
        whole = [_with_waiting(chunk, field.type) for chunk in table.column("times").chunks]
        table = table.set_column(place, field, pa.chunked_array(whole, field.type))
    return table.replace_schema_metadata(metadata | {VERSION_KEY: str(SCHEMA_VERSION)})


def _with_nothing(table: pa.Table, name: str, after: str) -> pa.Table:
    """``table`` with a column of nulls, empty texts or empty lists behind ``after``."""
    field = SCHEMA.field(name)
    nothing: Any = "" if field.type == pa.string() else []
    none = pa.array([None if field.nullable else nothing] * len(table), field.type)
    return table.add_column(table.column_names.index(after) + 1, field, none)


def _with_waiting(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Times of which nobody waited for approval."""
    parts = [*column.flatten(), pa.array(np.zeros(len(column)))]
    return pa.StructArray.from_arrays(parts, fields=list(kind))


def _with_supports(column: pa.Array) -> pa.Array:
    """Version 1 segments with null supports: they were sampled from the full vocabulary."""
    structs = column.flatten()
    parts = [*structs.flatten(), *(pa.nulls(len(structs), kind) for kind in _SUPPORT.values())]
    segments = pa.StructArray.from_arrays(parts, fields=list(_SEGMENT))
    offsets = _offsets([end - start for start, end in _bounds(column)])
    return pa.ListArray.from_arrays(offsets, segments, type=_list(_SEGMENT))


def _facts(episode: Episode) -> dict[str, Any]:
    """Every column but step and segments."""
    provenance = episode.provenance
    versions = [{"version": v, "digest": text} for v, text in provenance.versions]
    names = ("episode_id", "task_id", "group_id", "member", "split", "environment")
    return {name: getattr(episode, name) for name in names} | {
        "initial_state": episode.initial_state,
        "states": list(episode.states),
        "seed": episode.seed,
        "actor": episode.actor,
        "attempt": episode.attempt,
        "ending": asdict(episode.ending),
        "verdict": asdict(episode.verdict) if episode.verdict else None,
        "rewards": [asdict(reward) for reward in episode.rewards],
        "faults": [asdict(fault) for fault in episode.faults],
        "refusals": [asdict(refusal) for refusal in episode.refusals],
        "signals": [asdict(levels) for levels in episode.signals],
        "gate": asdict(episode.gate) if episode.gate else None,
        "stratum": episode.stratum,
        "prefix": asdict(episode.prefix) if episode.prefix else None,
        "costs": asdict(episode.costs),
        "times": asdict(episode.times),
        "provenance": provenance.parts() | {"versions": versions},
    }


def _episode(row: dict[str, Any], segments: tuple[Segment, ...]) -> Episode:
    ending, verdict, provenance = row["ending"], row["verdict"], row["provenance"]
    versions = tuple((item["version"], item["digest"]) for item in provenance.pop("versions"))
    replaced = {
        "split": Split(row["split"]),
        "actor": Actor(row["actor"]),
        "segments": segments,
        "states": tuple(row["states"]),
        "ending": Ending(**ending | {"kind": EndingKind(ending["kind"])}),
        "verdict": verdict and Verdict(**verdict | {"status": VerdictStatus(verdict["status"])}),
        "rewards": tuple(_reward(item) for item in row["rewards"]),
        "faults": tuple(FaultRecord(**item) for item in row["faults"]),
        "refusals": tuple(
            Refusal(**item | {"reason": RefusalReason(item["reason"])}) for item in row["refusals"]
        ),
        "signals": tuple(Levels(item["name"], tuple(item["values"])) for item in row["signals"]),
        "gate": row["gate"] and Gate(**row["gate"]),
        "prefix": row["prefix"] and Prefix(**row["prefix"]),
        "costs": Costs(**row["costs"]),
        "times": Times(**row["times"]),
        "provenance": Provenance(**provenance, versions=versions),
    }
    return Episode(**row | replaced)


def _reward(item: dict[str, Any]) -> Reward:
    owner = Owner(**item["owner"] | {"kind": OwnerKind(item["owner"]["kind"])})
    return Reward(item["component"], item["value"], owner)


def _segment_column(episodes: list[tuple[Segment, ...]]) -> pa.Array:
    """Column of lists of segments, built from whole arrays rather than token by token."""
    flat = [segment for segments in episodes for segment in segments]
    columns = {name: _token_column(name, flat) for name in _TOKENS}
    columns |= _support_columns(flat)
    columns["spans"] = _span_column([segment.spans for segment in flat])
    for name in ("kind", "parent", "origin", "agent"):
        columns[name] = pa.array([getattr(each, name) for each in flat], _PART_TYPES[name])
    structs = pa.StructArray.from_arrays([columns[f.name] for f in _PARTS], fields=_PARTS)
    offsets = _offsets([len(segments) for segments in episodes])
    return pa.ListArray.from_arrays(offsets, structs, type=_list(_SEGMENT))


def _span_column(segments: list[tuple[Span, ...]]) -> pa.Array:
    flat = [span for spans in segments for span in spans]
    columns = [pa.array([getattr(each, f.name) for each in flat], f.type) for f in _SPAN_FIELDS]
    structs = pa.StructArray.from_arrays(columns, fields=_SPAN_FIELDS)
    offsets = _offsets([len(spans) for spans in segments])
    return pa.ListArray.from_arrays(offsets, structs, type=_PART_TYPES["spans"])


def _token_column(name: str, segments: list[Segment]) -> pa.Array:
    arrays = [getattr(segment, name) for segment in segments]
    kind = _PART_TYPES[name]
    joined = np.concatenate(arrays) if arrays else np.zeros(0, _TOKENS[name].to_pandas_dtype())
    # from_pandas=False: NaN is a value here, not a null.
    values = pa.array(joined, kind.value_type, from_pandas=False)
    return pa.ListArray.from_arrays(_offsets([len(a) for a in arrays]), values, type=kind)


def _support_columns(segments: list[Segment]) -> dict[str, pa.Array]:
    """The two arrays of every segment's support, null where there is none."""
    supports = [segment.support for segment in segments]
    missing = pa.array([support is None for support in supports], pa.bool_())
    columns = {}
    for (name, kind), field in zip(_SUPPORT.items(), ("ids", "offsets"), strict=True):
        arrays = [getattr(support, field) for support in supports if support is not None]
        lengths = [0 if each is None else len(getattr(each, field)) for each in supports]
        empty = np.zeros(0, kind.value_type.to_pandas_dtype())
        values = pa.array(np.concatenate([empty, *arrays]), kind.value_type)
        columns[name] = pa.ListArray.from_arrays(_offsets(lengths), values, type=kind, mask=missing)
    return columns


def _offsets(lengths: list[int]) -> pa.Array:
    return pa.array([0, *accumulate(lengths)], pa.int32())


def _segment_rows(column: pa.Array) -> list[tuple[Segment, ...]]:
    """Segments of every row. Token arrays are read-only views of the column's memory."""
    structs = column.flatten()
    tokens = {name: _token_views(structs.field(name)) for name in [*_TOKENS, *_SUPPORT]}
    cut = structs.field("support_offsets").is_valid().to_pylist()
    names = ("spans", "kind", "parent", "origin", "agent")
    rest = {name: structs.field(name).to_pylist() for name in names}
    flat = [
        Segment(
            ids=tokens["ids"][i],
            action=tokens["action"][i],
            weight=tokens["weight"][i],
            logprob=tokens["logprob"][i],
            version=tokens["version"][i],
            turn=tokens["turn"][i],
            spans=tuple(
                Span(**span | {"kind": SpanKind(span["kind"])}) for span in rest["spans"][i]
            ),
            kind=SegmentKind(rest["kind"][i]),
            parent=rest["parent"][i],
            origin=rest["origin"][i],
            agent=rest["agent"][i],
            support=Support(tokens["support_ids"][i], tokens["support_offsets"][i])
            if cut[i]
            else None,
        )
        for i in range(len(structs))
    ]
    return [tuple(flat[a:b]) for a, b in _bounds(column)]


def _token_views(column: pa.Array) -> list[npt.NDArray[Any]]:
    values = column.flatten().to_numpy(zero_copy_only=False)
    values.flags.writeable = False
    return [values[a:b] for a, b in _bounds(column)]


def _bounds(column: pa.Array) -> list[tuple[int, int]]:
    offsets = column.offsets.to_numpy()
    shifted = (offsets - offsets[0]).tolist() if len(offsets) else []
    return list(pairwise(shifted))
