"""Why a row of a data set cannot be learned from: stable codes, with the details."""

from __future__ import annotations

from enum import StrEnum


class Flaw(StrEnum):
    """Codes are stable: they are written to ``bad_rows.jsonl`` and counted in the ledger."""

    NOT_UTF8 = "not_utf8"
    INVALID_JSON = "invalid_json"
    """The line is no JSON object."""
    FIELD_SIZE = "field_size"
    """The texts of one field are longer than ``FIELD_BYTES``."""
    MISSING_SIDE = "missing_side"
    """A field that the row's form needs is not there."""
    FORM = "form"
    """The fields are of no known form, or of the wrong type."""
    EMPTY_TARGET = "empty_target"
    """There is nothing to learn: no assistant turn, an empty one, or none with weight."""
    UNKNOWN_ROLE = "unknown_role"
    MESSAGE = "message"
    """A message is malformed, or does not follow from those before it."""
    TOOLS = "tools"
    """Tools or tool calls do not parse."""
    EQUAL_SIDES = "equal_sides"
    """Both sides of a pair say the same."""
    TEMPLATE = "template"
    """The chat template of the model cannot render the conversation."""
    TOO_LONG = "too_long"
    """It has more tokens than ``task.limits.context_tokens``."""
    COLUMN = "column"
    """A column says how the row is to be rendered, and is not read here."""
    IN_TRAINING = "in_training"
    """A held-out row whose prompt is trained on."""


class BadRow(Exception):
    """One row cannot be used. ``flaw`` is the code, ``str()`` the details."""

    def __init__(self, flaw: Flaw, detail: str) -> None:
        self.flaw = flaw
        super().__init__(detail)
