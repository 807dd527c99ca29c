"""Trackio: one run a run folder, in trackio's own folder (``TRACKIO_DIR``) or Space."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any, ClassVar

import trackio

from hexad.evidence.trackers.tracker import PROJECT, Numbers, Subject


class Trackio:
    """It finds a run again by its name, so each gets one that no other run has.

    It keeps rows in the order of their arrival: what a kill made undone stays as it was told.
    """

    rewinds: ClassVar[bool] = False

    def __init__(self, subject: Subject, known: Mapping[str, Any] | None, first: int) -> None:
        del first  # nothing can be taken back
        self._name = f"{subject.name}-{secrets.token_hex(3)}" if known is None else known["id"]
        self._run = trackio.init(
            project=PROJECT,
            name=self._name,
            group=subject.group or None,
            config=dict(subject.recipe),
            resume="never" if known is None else "must",
            auto_log_gpu=False,
            auto_log_cpu=False,
            embed=False,
        )

    @staticmethod
    def problem() -> str | None:
        """A local folder is enough."""
        return None

    @property
    def known(self) -> dict[str, Any]:
        """The name of the run."""
        return {"id": self._name, "project": PROJECT}

    def tell(self, numbers: Numbers, step: int) -> None:
        """One row."""
        self._run.log(numbers, step=step)

    def flush(self) -> None:
        """The library's own thread writes twice a second."""

    def end(self, summary: Numbers, step: int, *, done: bool) -> None:
        """The summary is a last row."""
        if summary:
            self._run.log(summary, step=step)
        self._run.finish()
