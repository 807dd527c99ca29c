"""JSON as the standard says: what Python reads beyond it is refused."""

from __future__ import annotations

import json
import math
from typing import Any


def strict_json(text: str) -> Any:
    """JSON without duplicate keys, NaN, infinity or unpaired surrogates.

    Raises ``ValueError`` for anything else, ``RecursionError`` for what is nested too deeply.
    """
    value = json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse, parse_float=_finite)
    json.dumps(value, ensure_ascii=False).encode()  # an unpaired surrogate cannot be encoded
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a key appears twice")
    return result


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is not a finite number")
    return value
