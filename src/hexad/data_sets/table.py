"""Rows of a JSON lines file, a Parquet file or a Hugging Face data set, one after the other."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from hexad.contract.faults import UserError
from hexad.contract.strict_json import strict_json
from hexad.data_sets.bad import BadRow, Flaw
from hexad.recipe.data_set_axis import DataSetSpec

_LINE_BYTES = 64_000_000
"""A longer line is not read: no row of fields within the limits needs it."""
_BATCH = 256

Row = Mapping[str, Any] | BadRow


@dataclass(frozen=True, slots=True)
class Table:
    """``digest`` names the content. ``rows`` reads it from its start: number from 1, and the row.

    The number of a JSON lines row is that of its line; blank lines are no rows.
    """

    digest: str
    rows: Callable[[], Iterator[tuple[int, Row]]]


def open_table(spec: DataSetSpec, where: str) -> Table:
    """The table of ``spec``. Raises ``UserError`` on ``where`` for one that cannot be opened.

    In Parquet and Hugging Face tables a missing key of a struct is ``null``, so keys that are
    ``null`` are absent there.
    """
    if spec.format == "hf":
        return _hugging_face(spec, where)
    path = Path(spec.path).expanduser()
    if not path.is_file():
        fix = f"name a {spec.format} file" + (", or use format: hf" if path.is_dir() else "")
        raise UserError(f"there is no file {path}", where=f"{where}.path", fix=fix)
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    read = _lines if spec.format == "jsonl" else _parquet
    return Table(digest, lambda: read(path))


def _lines(path: Path) -> Iterator[tuple[int, Row]]:
    with open(path, "rb") as file:
        number = 0
        while line := file.readline(_LINE_BYTES):
            number += 1
            if not line.endswith(b"\n") and len(line) == _LINE_BYTES:
                while (rest := file.readline(_LINE_BYTES)) and not rest.endswith(b"\n"):
                    pass
                yield number, BadRow(Flaw.FIELD_SIZE, f"the line is over {_LINE_BYTES} bytes")
            elif line.strip():
                yield number, _line(line)


def _line(line: bytes) -> Row:
    try:
        value = strict_json(line.decode())
    except UnicodeDecodeError as error:
        return BadRow(Flaw.NOT_UTF8, f"byte {error.start} of the line: {error.reason}")
    except UnicodeEncodeError:
        return BadRow(Flaw.NOT_UTF8, "the line holds an unpaired surrogate")
    except (ValueError, RecursionError) as error:
        return BadRow(Flaw.INVALID_JSON, str(error))
    if not isinstance(value, dict):
        return BadRow(Flaw.INVALID_JSON, f"a row is an object, not {type(value).__name__}")
    return value


def _parquet(path: Path) -> Iterator[tuple[int, Row]]:
    try:
        with pq.ParquetFile(path) as file:
            number = 0
            for batch in file.iter_batches(_BATCH):
                for index in range(batch.num_rows):
                    number += 1
                    yield number, _columnar(partial(_only, batch, index))
    except (pa.ArrowInvalid, OSError) as error:
        fix = "write the file again, or name another"
        raise UserError(f"no readable Parquet: {error}", where=str(path), fix=fix) from error


def _only(batch: pa.RecordBatch, index: int) -> Any:
    (value,) = batch.slice(index, 1).to_pylist()
    return value


def _columnar(read: Callable[[], Any]) -> Row:
    try:
        value = read()
    except UnicodeDecodeError as error:
        return BadRow(Flaw.NOT_UTF8, f"a text is not UTF-8: {error.reason}")
    found: Mapping[str, Any] = _present(value)
    return found


def _present(value: Any) -> Any:
    """``value`` without the keys that are ``None``, at any depth."""
    if isinstance(value, Mapping):
        return {key: _present(each) for key, each in value.items() if each is not None}
    return [_present(each) for each in value] if isinstance(value, list) else value


def _hugging_face(spec: DataSetSpec, where: str) -> Table:
    """A folder that ``save_to_disk`` wrote, or whatever ``load_dataset`` finds under the name."""
    try:
        import datasets
    except ImportError as error:
        fix = "pip install 'hexad[datasets]', or use format: jsonl or parquet"
        raise UserError("datasets is not installed", where=f"{where}.format", fix=fix) from error

    folder = Path(spec.path).expanduser()
    saved = any((folder / name).is_file() for name in ("state.json", "dataset_dict.json"))
    try:
        found = datasets.load_from_disk(str(folder)) if saved else _named(spec, datasets)
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        fix = "name a folder written by save_to_disk, a folder of data files, or a data set's id"
        what = f"the data set {spec.path} cannot be loaded: {error}"
        raise UserError(what, where=f"{where}.path", fix=fix) from error
    if isinstance(found, datasets.DatasetDict):
        if spec.split not in found:
            what = f"the data set {spec.path} has the splits {', '.join(found)}"
            raise UserError(what, where=f"{where}.split", fix=f"use split: {next(iter(found))}")
        found = found[spec.split]

    def rows() -> Iterator[tuple[int, Row]]:
        for index in range(len(found)):
            yield index + 1, _columnar(partial(found.__getitem__, index))

    return Table(str(found._fingerprint), rows)


def _named(spec: DataSetSpec, datasets: Any) -> Any:
    return datasets.load_dataset(spec.path, split=spec.split)
