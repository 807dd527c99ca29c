"""What the tools of a family may change, and when a family is let go."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from hexad.environments.protocol import Declaring, TaskFamily
from hexad.environments.tools import Effect

CLOSE_SECONDS = 5.0
"""How long a family may take to close."""


def irreversible(family: TaskFamily) -> list[str]:
    """Tools of ``family`` that it declares irreversible."""
    declared = family.effects if isinstance(family, Declaring) else {}
    return sorted(name for name, effect in declared.items() if effect is Effect.IRREVERSIBLE)


def uncontained(family: TaskFamily) -> list[str]:
    """Tools of ``family`` whose effect a reset does not undo, or of which it declares nothing."""
    declared = family.effects if isinstance(family, Declaring) else {}
    names = [tool.name for tool in family.tools]
    return sorted(n for n in names if n not in declared or not declared[n].contained)


@contextmanager
def opened(family: TaskFamily) -> Iterator[TaskFamily]:
    """``family``, closed at the end if it has a ``close``, also after an error.

    What was trained is whole by then, so a ``close`` that raises or hangs is only told.
    """
    try:
        yield family
    finally:
        _close(family)


def _close(family: TaskFamily) -> None:
    failures: list[str] = []

    def work() -> None:
        try:
            close = getattr(family, "close", None)
            if callable(close):
                close()
        except BaseException as error:  # noqa: BLE001 - the boundary to user code
            failures.append(f"raised {type(error).__name__}: {error}")

    thread = threading.Thread(target=work, daemon=True, name="close")
    thread.start()
    thread.join(CLOSE_SECONDS)
    if thread.is_alive():
        failures.append(f"took longer than {CLOSE_SECONDS:g} s")
    for failure in failures:
        warnings.warn(f"closing the family {family.name} {failure}", RuntimeWarning, stacklevel=3)
