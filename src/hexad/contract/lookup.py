"""Finding parts by name: built-ins, ``package.module:object``, and the nearest right name."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable, Mapping
from typing import Any

from hexad.contract.faults import UserError


def nearest(name: str, choices: Iterable[str]) -> str:
    """A hint that names the closest of ``choices`` and lists them all."""
    known = sorted(choices)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]}? " if close else ""
    return f"{hint}known: {', '.join(known)}"


def load_object(reference: str, *, where: str) -> Any:
    """The object that ``package.module:object`` names. Raises ``UserError`` if there is none."""
    module_name, _, path = reference.partition(":")
    if not module_name or not path:
        raise UserError(f"{reference!r} is not of the form package.module:object", where=where)
    try:
        found: Any = importlib.import_module(module_name)
    except (ImportError, SyntaxError) as error:
        fix = "check the spelling and that the module is on the Python path"
        raise UserError(f"cannot import {module_name}: {error}", where=where, fix=fix) from error
    for part in path.split("."):
        if not hasattr(found, part):
            fix = nearest(part, [n for n in dir(found) if not n.startswith("_")])
            raise UserError(f"{module_name} has no {path}", where=where, fix=fix)
        found = getattr(found, part)
    return found


def find(name: str, builtins: Mapping[str, str], *, what: str, where: str) -> Any:
    """The object of a built-in ``name`` or of a reference. Raises ``UserError`` for neither."""
    if ":" in name:
        return load_object(name, where=where)
    if name not in builtins:
        fix = f"{nearest(name, builtins)}; or package.module:object"
        raise UserError(f"there is no {what} named {name!r}", where=where, fix=fix)
    return load_object(builtins[name], where=where)
