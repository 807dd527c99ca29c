"""One command in many processes, as torchrun starts it: who speaks, also when one fails."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

_CLAIMED, _TOLD = "hexad/failure/claimed", "hexad/failure/told"
_PATIENCE = timedelta(seconds=10)
"""How long a process waits until another has told of its failure."""


def size() -> int:
    """How many processes share the run; 1 without torchrun."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def first() -> bool:
    """Whether this process claims the folder and draws progress, summary and curve."""
    return size() == 1 or os.environ.get("RANK", "0") == "0"


def tell_once(tell: Callable[[], None]) -> None:
    """Call ``tell`` in the process that failed first; the others wait until it has told.

    One failure ends every process, most of them with an error about a lost neighbour; the first
    has the cause. torchrun's store decides who that is: it outlives the processes. Where there is
    no such store, rank 0 tells.
    """
    store = _store() if size() > 1 else None
    if store is None:
        if first():
            tell()
    elif store.add(_CLAIMED, 1) == 1:
        tell()
        store.set(_TOLD, "yes")
    else:
        with suppress(RuntimeError):
            store.wait([_TOLD], _PATIENCE)


def lost_neighbour(failure: BaseException) -> bool:
    """Whether ``failure`` only says that another process went away."""
    return size() > 1 and isinstance(failure, RuntimeError) and "gloo" in str(failure)


def _store() -> Any:
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    try:
        address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        return TCPStore(address, port, is_master=False, timeout=_PATIENCE)
    except (KeyError, RuntimeError):
        return None
