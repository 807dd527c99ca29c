"""The manifest of a checkpoint: written last, so a checkpoint with a true manifest is whole."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from hexad.contract.digest import digest

NAME = "manifest.json"
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class StoreMark:
    """Where the episode store stood: its last committed step and its number of episodes."""

    last_step: int
    episodes: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """``files``: path -> (bytes, sha256). ``logs``: path from the run folder -> bytes."""

    step: int
    files: Mapping[str, tuple[int, str]]
    logs: Mapping[str, int]
    store: StoreMark | None

    def dump(self) -> bytes:
        """The JSON text, with a digest of itself."""
        body = {
            "format": _FORMAT,
            "step": self.step,
            "files": {p: {"bytes": n, "sha256": d} for p, (n, d) in self.files.items()},
            "logs": dict(self.logs),
            "store": asdict(self.store) if self.store else None,
        }
        return json.dumps({**body, "digest": digest(body)}, indent=1).encode()

    @classmethod
    def parse(cls, data: bytes) -> Manifest:
        """Inverse of :meth:`dump`. Raises ``ValueError`` for damage or another format."""
        body = json.loads(data)
        if not isinstance(body, dict) or body.pop("digest", None) != digest(body):
            raise ValueError("it does not match its own digest")
        if body["format"] != _FORMAT:
            raise ValueError(f"format {body['format']}; this Hexad reads {_FORMAT}")
        files = {p: (f["bytes"], f["sha256"]) for p, f in body["files"].items()}
        store = StoreMark(**body["store"]) if body["store"] else None
        return cls(body["step"], files, body["logs"], store)


def survey(folder: Path) -> dict[str, tuple[int, str]]:
    """Size and sha256 of every file below ``folder``, the manifest apart, by sorted path."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and name != NAME:
            found[name] = (path.stat().st_size, _sha256(path))
    return found


def verify(folder: Path) -> Manifest:
    """The manifest of a whole checkpoint. Raises ``ValueError`` saying what is wrong with it."""
    file = folder / NAME
    if not file.is_file():
        raise ValueError(f"{NAME} is missing: the checkpoint was not finished")
    try:
        manifest = Manifest.parse(file.read_bytes())
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{NAME} is damaged: {error}") from error
    for name, (size, expected) in manifest.files.items():
        path = folder / name
        if not path.is_file():
            raise ValueError(f"{name} is missing")
        if path.stat().st_size != size:
            raise ValueError(f"{name} has {path.stat().st_size} bytes instead of {size}")
        if _sha256(path) != expected:
            raise ValueError(f"{name} does not have the recorded sha256")
    return manifest


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
