"""The process that runs a user's verifier: ``python -m hexad.feedback.worker ORIGIN``.

It speaks the JSON lines of :mod:`hexad.environments.worker`; what they hold is in
:mod:`hexad.feedback.wire`. It answers with a verdict, with ``{"limit": [unit, allowed]}`` where the
memory that the verifier declares was not enough, or with ``{"fault": text}``.
"""

from __future__ import annotations

import resource
import sys
from functools import partial
from pathlib import Path
from typing import Any

from hexad.contract.arrow import from_ipc, to_ipc
from hexad.contract.faults import VerifierFault
from hexad.environments.worker import Answer, fault, serve
from hexad.feedback.judge import require_verdict
from hexad.feedback.protocol import Verifier
from hexad.feedback.registry import build
from hexad.feedback.wire import pack_verdict, unpack_origin, unpack_request


def answer(verifier: Verifier, memory: int | None, line: str) -> dict[str, Any]:
    """The reply to one request line. ``SystemExit`` passes through and ends the process.

    ``memory`` is the limit in MB that holds for the process, where one does.
    """
    request = unpack_request(line)
    try:
        return pack_verdict(require_verdict(verifier.verify(*request)))
    except MemoryError as error:
        return fault(error) if memory is None else {"limit": ["MB", memory]}
    except VerifierFault as error:
        return {"fault": str(error)}
    except Exception as error:  # noqa: BLE001 - the boundary: any failure of user code is reported
        return fault(error)


def _verifier(text: str) -> Answer:
    from_ipc(to_ipc([]))  # what Arrow loads on first use is not part of a judgement's time
    name, options, origin = unpack_origin(text)
    verifier = build(name, origin.make(), options)
    memory = getattr(verifier, "memory", None)
    if memory is not None:
        _limit_memory(memory)
    return partial(answer, verifier, memory)


def _limit_memory(megabytes: int) -> None:
    """Let the address space grow by ``megabytes`` from here, and no further.

    The limit is soft, so that the sandbox gives what it starts a limit of its own, also a higher
    one. Nothing that the policy wrote runs in this process and could raise it.
    """
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + (megabytes << 20)
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    soft = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


if __name__ == "__main__":
    serve(partial(_verifier, sys.argv[1]))
