"""One broken rule of a recipe."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """The dotted ``key``, why it cannot be, and what to write instead."""

    key: str
    reason: str
    fix: str
