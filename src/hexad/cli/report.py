"""How a command ends: its exit code, one clear message, and where the details are."""

from __future__ import annotations

import contextlib
import json
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hexad.cli.ranks import first, lost_neighbour, tell_once
from hexad.contract.faults import FaultRateExceeded, UserError, WorkersLost

OK, OURS, USERS, INTERRUPTED = 0, 1, 2, 130
"""Exit codes: done; our fault; the user's mistake; stopped by Ctrl-C."""


class Interrupted(Exception):
    """The run stopped cleanly because it was asked to; ``fix`` says how to go on."""

    def __init__(self, what: str, *, where: str, fix: str) -> None:
        super().__init__(f"{what}\n  where: {where}\n  fix:   {fix}")
        self.what, self.where, self.fix = what, where, fix


def conclude(
    action: Callable[[], Mapping[str, Any]],
    *,
    as_json: bool,
    crash_folder: Callable[[], Path] | None = None,
) -> int:
    """Run ``action`` and return the exit code.

    With ``as_json`` stdout gets exactly one JSON document: what ``action`` returned, or
    ``{"error": {...}}``. Whatever else is printed meanwhile goes to stderr. A traceback of ours is
    written to ``crash.txt`` in ``crash_folder``, or to stderr where there is no such folder. Of
    several processes (torchrun) rank 0 prints the document, and the first that fails its error.
    """
    elsewhere = contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext()
    try:
        with elsewhere:
            document = dict(action())
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the outermost boundary
        failure = error
    else:
        if as_json and first():
            _print(document)
        return OK

    def tell() -> None:
        text, told = _told(failure, crash_folder)
        if as_json:
            _print(told)
        else:
            sys.stderr.write(text + "\n")

    tell_once(tell)
    return _code(failure)


def _code(failure: BaseException) -> int:
    if isinstance(failure, UserError):
        return USERS
    return INTERRUPTED if isinstance(failure, Interrupted | KeyboardInterrupt) else OURS


def _told(
    failure: BaseException, crash_folder: Callable[[], Path] | None
) -> tuple[str, dict[str, Any]]:
    """What people read, and the document; the traceback of a failure of ours is kept."""
    if isinstance(failure, UserError):
        return f"error: {failure}", _error("user", failure.what, failure.where, failure.fix)
    if isinstance(failure, Interrupted):
        return str(failure), _error("interrupted", failure.what, failure.where, failure.fix)
    folder = crash_folder() if crash_folder else None
    if isinstance(failure, KeyboardInterrupt):
        fix = "continue from the last checkpoint with --resume"
        where = str(folder) if folder else ""
        return f"stopped at once\n  fix:   {fix}", _error(
            "interrupted", "stopped at once", where, fix
        )
    if isinstance(failure, FaultRateExceeded | WorkersLost):
        where = str(folder) if folder else ""
        fix = "repair what failed, then go on from the last checkpoint with --resume"
        return f"failed: {failure}\n  where:   {where}", _error("faults", str(failure), where, fix)
    where = _crash(failure, folder)
    what = f"{type(failure).__name__}: {failure}"
    fix = "this is a fault of Hexad or of its surroundings; the traceback says where"
    if lost_neighbour(failure):
        what = "another rank ended without a word"
        fix = "see why it was killed (memory?), then go on from the last checkpoint with --resume"
    shown = f"failed: {what}\n  where: {where}\n  fix:   {fix}"
    return shown, _error("internal", what, where, fix)


def _error(kind: str, what: str, where: str, fix: str) -> dict[str, Any]:
    return {"error": {"kind": kind, "what": what, "where": where, "fix": fix}}


def _print(document: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(document, allow_nan=False) + "\n")
    sys.stdout.flush()


def _crash(error: BaseException, folder: Path | None) -> str:
    """Keep the traceback and say where."""
    text = "".join(traceback.format_exception(error))
    if folder is not None and folder.is_dir():
        path = folder / "crash.txt"
        try:
            path.write_text(text, encoding="utf-8")
        except OSError:
            pass  # a full disk may be the very fault; stderr is left
        else:
            return str(path)
    sys.stderr.write(text)
    return "stderr"
