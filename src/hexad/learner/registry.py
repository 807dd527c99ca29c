"""Whatever outlives a step, by name. A checkpoint is this registry."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Protocol

from safetensors.torch import load_file, save_file

from hexad.contract.faults import UserError
from hexad.learner.encoding import decode, encode

_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]*")


class Part(Protocol):
    """Something with state: optimiser, random generator, cursor, counter, queue."""

    def state(self) -> dict[str, Any]:
        """Everything needed to continue; see :func:`hexad.learner.encoding.encode` for types."""
        ...

    def restore(self, state: dict[str, Any]) -> None:
        """Continue exactly where ``state`` was taken."""
        ...


class Registry:
    """Parts in the order of registration; they are restored in that order.

    On disk every part is ``NAME.json`` and, where it has tensors, ``NAME.safetensors``.
    """

    def __init__(self) -> None:
        self._parts: dict[str, Part] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the registered parts."""
        return tuple(self._parts)

    def register(self, name: str, part: Part) -> None:
        """Add ``part``. Raises ``ValueError`` for a name that is taken or unfit for a file."""
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a file name of a-z, 0-9, '_', '.' and '-'")
        if name in self._parts:
            raise ValueError(f"a part named {name!r} is registered already")
        self._parts[name] = part

    def save(self, folder: Path) -> None:
        """Write the state of every part into the new ``folder``."""
        folder.mkdir()
        for name, part in self._parts.items():
            value, tensors = encode(part.state())
            text = json.dumps(value, allow_nan=False, indent=1)
            (folder / f"{name}.json").write_text(text, encoding="utf-8")
            if tensors:
                save_file(tensors, folder / f"{name}.safetensors")

    def read(self, folder: Path, name: str) -> dict[str, Any]:
        """The state of part ``name`` in ``folder``; nothing is restored."""
        return _read(folder, name)

    def load(self, folder: Path) -> None:
        """Restore every part from ``folder``.

        Raises ``UserError`` with the names that are missing or unexpected, before any is restored.
        """
        stored = {path.stem for path in folder.glob("*.json")}
        known = self._parts.keys()
        if stored != known:
            raise UserError(
                "the checkpoint does not fit this run: "
                f"missing state: {_listed(known - stored)}; "
                f"unexpected state: {_listed(stored - known)}",
                where=str(folder),
                fix="resume with the recipe and the release of Hexad that wrote the checkpoint",
            )
        states = {name: _read(folder, name) for name in self._parts}
        for name, part in self._parts.items():
            part.restore(states[name])


def _read(folder: Path, name: str) -> dict[str, Any]:
    value = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    file = folder / f"{name}.safetensors"
    state = decode(value, load_file(file) if file.exists() else {})
    assert isinstance(state, dict)
    return state


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names)) or "none"
