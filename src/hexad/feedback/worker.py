"""The process that runs a user's verifier: ``python -m hexad.feedback.worker ORIGIN``.

It speaks the JSON lines of :mod:`hexad.environments.worker`; what they hold is in
:mod:`hexad.feedback.wire`. It answers with a verdict, or with ``{"fault": text}``.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

from hexad.contract.arrow import from_ipc, to_ipc
from hexad.contract.faults import VerifierFault
from hexad.environments.worker import Answer, fault, serve
from hexad.feedback.judge import require_verdict
from hexad.feedback.protocol import Verifier
from hexad.feedback.registry import build
from hexad.feedback.wire import pack_verdict, unpack_origin, unpack_request


def answer(verifier: Verifier, line: str) -> dict[str, Any]:
    """The reply to one request line. ``SystemExit`` passes through and ends the process."""
    try:
        return pack_verdict(require_verdict(verifier.verify(*unpack_request(line))))
    except VerifierFault as error:
        return {"fault": str(error)}
    except Exception as error:  # noqa: BLE001 - the boundary: any failure of user code is reported
        return fault(error)


def _verifier(text: str) -> Answer:
    from_ipc(to_ipc([]))  # what Arrow loads on first use is not part of a judgement's time
    name, origin = unpack_origin(text)
    return partial(answer, build(name, origin.make()))


if __name__ == "__main__":
    serve(partial(_verifier, sys.argv[1]))
