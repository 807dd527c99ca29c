"""The process that runs isolated tools: ``python -m hexad.environments.worker module:tool``.

It speaks JSON lines. Once the tool is imported it writes ``{"ready": true}``, else a fault. Each
line it reads is an object of arguments; it answers with ``{"content": text}``, with
``{"error": text}`` when the policy is to blame, or with ``{"fault": text}`` otherwise. It exits
when its standard input closes, also in the middle of a call, so it never outlives its parent.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

from hexad.contract.lookup import load_object
from hexad.environments.tools import Tool, ToolError

Answer: TypeAlias = Callable[[str], dict[str, Any]]
"""From a request line to a reply."""


def answer(tool: Tool, line: str) -> dict[str, Any]:
    """The reply to one request line. ``SystemExit`` passes through and ends the process."""
    try:
        checked = tool.arguments.model_validate_json(line)
        return {
            "content": tool.invoke({n: getattr(checked, n) for n in type(checked).model_fields})
        }
    except ToolError as error:
        return {"error": str(error)}
    except Exception as error:  # noqa: BLE001 - the boundary: any failure of user code is reported
        return fault(error)


def fault(error: BaseException) -> dict[str, Any]:
    """The reply that blames nobody but the code that was run here."""
    return {"fault": f"{type(error).__name__}: {error}"}


def serve(prepare: Callable[[], Answer]) -> None:
    """Answer requests until standard input closes, with what ``prepare`` makes."""
    pipe = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what user code prints must not look like a reply

    def reply(content: dict[str, Any]) -> None:
        pipe.write(json.dumps(content) + "\n")
        pipe.flush()

    try:
        respond = prepare()
    except Exception as error:
        reply(fault(error))
        raise
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(lines,), daemon=True).start()
    reply({"ready": True})
    while True:
        reply(respond(lines.get()))


def _read(lines: queue.SimpleQueue[str]) -> None:
    for line in sys.stdin:
        lines.put(line)
    os._exit(0)


def _tool(target: str) -> Answer:
    found = load_object(target, where=target)
    if not isinstance(found, Tool):
        raise TypeError(f"it is a {type(found).__name__}, not a tool")
    return partial(answer, found)


def main(target: str) -> None:
    """Serve the tool ``target`` until standard input closes."""
    serve(partial(_tool, target))


if __name__ == "__main__":
    main(sys.argv[1])
