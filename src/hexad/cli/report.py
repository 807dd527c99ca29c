"""How a command ends: its exit code, one clear message, and where the details are."""

from __future__ import annotations

import contextlib
import json
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hexad.contract.faults import UserError

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
    written to ``crash.txt`` in ``crash_folder``, or to stderr where there is no such folder.
    """
    elsewhere = contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext()
    try:
        with elsewhere:
            document = dict(action())
        code = OK
    except UserError as error:
        code, document = USERS, _error("user", error.what, error.where, error.fix)
        _say(f"error: {error}", silent=as_json)
    except Interrupted as error:
        code, document = INTERRUPTED, _error("interrupted", error.what, error.where, error.fix)
        _say(str(error), silent=as_json)
    except KeyboardInterrupt:
        where = str(crash_folder()) if crash_folder else ""
        fix = "continue from the last checkpoint with --resume"
        code, document = INTERRUPTED, _error("interrupted", "stopped at once", where, fix)
        _say(f"stopped at once\n  fix:   {fix}", silent=as_json)
    except Exception as error:  # noqa: BLE001 - the outermost boundary: it reports, then exits 1
        where = _crash(error, crash_folder() if crash_folder else None)
        what = f"{type(error).__name__}: {error}"
        fix = "this is a fault of Hexad or of its surroundings; the traceback says where"
        code, document = OURS, _error("internal", what, where, fix)
        _say(f"failed: {what}\n  where: {where}\n  fix:   {fix}", silent=as_json)
    if as_json:
        sys.stdout.write(json.dumps(document, allow_nan=False) + "\n")
        sys.stdout.flush()
    return code


def _error(kind: str, what: str, where: str, fix: str) -> dict[str, Any]:
    return {"error": {"kind": kind, "what": what, "where": where, "fix": fix}}


def _say(text: str, *, silent: bool) -> None:
    if not silent:
        sys.stderr.write(text + "\n")


def _crash(error: Exception, folder: Path | None) -> str:
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
