"""Reading YAML 1.2 without losing the place: values, and the line of every key."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, SequenceNode

from hexad.contract.faults import UserError


@dataclass(frozen=True, slots=True)
class Document:
    """A recipe tree, and where each dotted key was written: ``file:line`` or an override."""

    path: Path
    tree: dict[str, Any]
    places: dict[str, str]

    def where(self, key: str) -> str:
        """Place of ``key`` or of the nearest section around it; the file itself otherwise."""
        parts = key.split(".")
        for size in range(len(parts), 0, -1):
            if place := self.places.get(".".join(parts[:size])):
                return place
        return str(self.path)


def read(path: Path) -> Document:
    """Parse the mapping in ``path``. Raises ``UserError`` naming file and line."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        fix = "give the path of a recipe, for example recipes/calculator.yaml"
        raise UserError("there is no such recipe file", where=str(path), fix=fix) from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"the recipe cannot be read: {error}", where=str(path)) from error
    tree = parse(text, str(path))
    if not isinstance(tree, dict):
        raise UserError(
            f"a recipe is a mapping of keys, this file holds {_name(tree)}",
            where=str(path),
            fix="start with 'method: grpo' and the sections that differ from its preset",
        )
    places = _places(YAML(typ="safe", pure=True).compose(text), "", str(path))
    return Document(path, tree, places)


def parse(text: str, where: str) -> Any:
    """The value of a YAML 1.2 text: ``1e-6`` is a number, a duplicate key is an error."""
    try:
        value = YAML(typ="safe", pure=True).load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark
        line = f"{where}:{mark.line + 1}" if mark is not None else where
        problem = str(error.problem).strip()
        raise UserError(f"not valid YAML: {problem}", where=line) from error
    except YAMLError as error:
        raise UserError(f"not valid YAML: {error}", where=where) from error
    return _plain(value, where)


def apply(document: Document, overrides: list[str]) -> None:
    """Write dotted overrides such as ``update.optimizer.lr=3e-4`` into ``document``."""
    for override in overrides:
        key, equals, text = override.partition("=")
        key = key.strip()
        if not equals or not key or not all(key.split(".")):
            raise UserError(
                f"an override is written key=value, not {override!r}",
                where="command line",
                fix="for example update.optimizer.lr=3e-4",
            )
        place = f"override {override}"
        _set(document, key, parse(text, place), place)


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """``over`` laid over ``base``: mappings merge, everything else replaces."""
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        both = isinstance(value, Mapping) and isinstance(below, Mapping)
        merged[key] = merge(below, value) if both else value  # type: ignore[arg-type]
    return merged


def _set(document: Document, key: str, value: Any, place: str) -> None:
    *sections, leaf = key.split(".")
    target = document.tree
    for depth, name in enumerate(sections, start=1):
        below = target.setdefault(name, {})
        if below is None:
            below = target[name] = {}
        if not isinstance(below, dict):
            section = ".".join(sections[:depth])
            raise UserError(f"{section} is a value, not a section", where=place)
        target = below
    target[leaf] = value
    document.places[key] = place


def _places(node: Node | None, key: str, file: str) -> dict[str, str]:
    places: dict[str, str] = {}
    if isinstance(node, MappingNode):
        for name, value in node.value:
            dotted = f"{key}.{name.value}" if key else str(name.value)
            places[dotted] = f"{file}:{name.start_mark.line + 1}"
            places |= _places(value, dotted, file)
    elif isinstance(node, SequenceNode):
        for index, value in enumerate(node.value):
            places[f"{key}.{index}"] = f"{file}:{value.start_mark.line + 1}"
            places |= _places(value, f"{key}.{index}", file)
    return places


def _plain(value: Any, where: str) -> Any:
    """``value`` if it is JSON apart from non-finite numbers; raises ``UserError`` otherwise."""
    try:
        return json.loads(json.dumps(value))
    except (TypeError, ValueError) as error:
        fix = "write text, numbers, true or false, null, lists and mappings with text keys"
        raise UserError(f"a value that a recipe cannot hold: {error}", where=where, fix=fix) from (
            error
        )


def _name(value: Any) -> str:
    names = {type(None): "nothing", list: "a list", str: "text", bool: "true or false"}
    return names.get(type(value), "a number")
