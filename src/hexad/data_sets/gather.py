"""Every row of a data set that can be learned from, and each that cannot, with the reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from hexad.contract.faults import UserError
from hexad.data_sets.bad import BadRow, Flaw
from hexad.data_sets.table import Row

Item = TypeVar("Item")
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Dropped:
    """A row that is not used."""

    row: int
    flaw: Flaw
    detail: str

    def json(self) -> dict[str, Any]:
        """One line of ``bad_rows.jsonl``."""
        return {"row": self.row, "flaw": str(self.flaw), "detail": self.detail}

    def text(self) -> str:
        """The same for a person."""
        return f"row {self.row}: {self.flaw}: {self.detail}"


@dataclass(frozen=True, slots=True)
class Gathered(Generic[Item]):
    """``items`` in the order of their rows; ``rows`` were read, ``dropped`` make no item."""

    items: tuple[Item, ...]
    rows: int
    dropped: tuple[Dropped, ...]

    @property
    def flaws(self) -> dict[str, int]:
        """Number of dropped rows by code."""
        return dict(sorted(Counter(str(each.flaw) for each in self.dropped).items()))


def gather(
    rows: Iterable[tuple[int, Row]],
    make: Callable[[int, Mapping[str, Any]], Item],
    bad: Literal["stop", "skip"],
    where: str,
) -> Gathered[Item]:
    """``make(number, row)`` of every row; it raises ``BadRow`` for one that cannot be used.

    All rows are read before anything is decided. Raises ``UserError`` on ``where`` when a row is
    bad and ``bad`` is ``stop``, and when no row is left.
    """
    items: list[Item] = []
    dropped: list[Dropped] = []
    count = 0
    for number, row in rows:
        count += 1
        try:
            if isinstance(row, BadRow):
                raise row
            items.append(make(number, row))
        except BadRow as error:
            dropped.append(Dropped(number, error.flaw, str(error)))
    if dropped and bad == "stop":
        fix = "mend the rows, or use data.bad_rows: skip, which lists every row that it drops"
        what = _told(f"{len(dropped)} of {count} rows are bad", dropped)
        raise UserError(what, where=where, fix=fix)
    if not items:
        fix = "name a data set with rows that can be learned from"
        what = _told(f"none of {count} rows can be used", dropped)
        raise UserError(what, where=where, fix=fix)
    return Gathered(tuple(items), count, tuple(dropped))


def _told(what: str, dropped: list[Dropped]) -> str:
    lines = [what, *(f"  {each.text()}" for each in dropped[:_SHOWN])]
    rest = len(dropped) - _SHOWN
    return "\n".join(lines + ([f"  and {rest} more"] if rest > 0 else []))
