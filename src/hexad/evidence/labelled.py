"""A stated sample: conversations that somebody else has judged, for a verifier to be held to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hexad.contract.ending import Ending, EndingKind
from hexad.contract.episode import Episode
from hexad.contract.task import Split, Task
from hexad.data_sets.bad import BadRow, Flaw
from hexad.data_sets.gather import gather
from hexad.data_sets.messages import conversation
from hexad.data_sets.table import open_table
from hexad.evidence.qualify import Case
from hexad.recipe.data_set_axis import DataSetSpec

KIND = "labelled"


@dataclass(frozen=True, slots=True)
class Labelled:
    """``cases`` and what was said of each; ``digest`` names the file's content."""

    cases: tuple[Case, ...]
    success: tuple[bool, ...]
    digest: str


def labelled(path: Path, carrier: Episode) -> Labelled:
    """The sample in ``path``, JSON lines or Parquet: ``messages``, ``data``, ``success`` a row.

    ``data`` is the task's, as the verifier reads it; ``messages`` end in an assistant's turn.
    ``carrier`` lends the fields that a verifier of transcripts does not read. Raises ``UserError``
    that names every bad row.
    """
    form: Any = "parquet" if path.suffix == ".parquet" else "jsonl"
    table = open_table(DataSetSpec(path=str(path), format=form), "--labels")

    def make(number: int, row: Mapping[str, Any]) -> tuple[Case, bool]:
        data, success = row.get("data"), row.get("success")
        if not isinstance(data, Mapping):
            raise BadRow(Flaw.FORM, "data is not an object: what the verifier reads of the task")
        if not isinstance(success, bool):
            raise BadRow(Flaw.FORM, "success is neither true nor false")
        told = [each.message for each in conversation(row.get("messages"), "messages")]
        if not told or told[-1].role != "assistant":
            raise BadRow(Flaw.FORM, "messages do not end in an assistant's turn")
        task = Task(f"{KIND}-{number}", Split.TRAIN, dict(data))
        ended = Ending.of(EndingKind.TERMINAL)
        episode = replace(carrier, task_id=task.task_id, ending=ended, states=(), rewards=())
        return Case(KIND, task, episode, tuple(told)), success

    found = gather(table.rows(), make, "stop", str(path)).items
    return Labelled(tuple(c for c, _ in found), tuple(said for _, said in found), table.digest)
