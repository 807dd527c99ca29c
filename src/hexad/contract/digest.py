"""Content digests: how Hexad names the exact thing that was used."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Mapping
from typing import Any


def canonical_json(value: Any) -> str:
    """Render ``value`` as JSON with sorted keys and no spaces. NaN and infinity are refused."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def digest(value: Any) -> str:
    """SHA-256 (hex, 64 characters) of the canonical JSON of ``value``, or of raw ``bytes``."""
    raw = value if isinstance(value, bytes) else canonical_json(value).encode()
    return hashlib.sha256(raw).hexdigest()


def code_digest(name: str, version: str, config: Mapping[str, Any], *sources: object) -> str:
    """Digest of a piece of code: name, declared version, configuration and source text.

    ``sources`` are the classes, functions or modules whose source text is hashed, so that an edit
    without a version bump still changes the digest. Seeds never belong in ``config``.
    """
    texts = [digest(inspect.getsource(source).encode()) for source in sources]  # type: ignore[arg-type]
    return digest({"name": name, "version": version, "config": dict(config), "sources": texts})
