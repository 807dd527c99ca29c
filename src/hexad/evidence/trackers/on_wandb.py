"""Weights & Biases: one run a run folder, online, or offline with ``WANDB_MODE=offline``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import wandb

from hexad.evidence.trackers.tracker import PROJECT, Numbers, Subject

_WAIT = 30.0
"""Seconds to reach the server at the start, and to upload what is left at the end."""
_OFFLINE = ("offline", "dryrun", "disabled")


class Wandb:
    """Nothing but numbers and the recipe leaves: no console, code, git, packages or machine facts.

    Its rule is that steps never fall, so what a kill made undone stays as it was told.
    """

    rewinds: ClassVar[bool] = False

    def __init__(self, subject: Subject, known: Mapping[str, Any] | None, first: int) -> None:
        del first  # nothing can be taken back
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        resume: Literal["must", "allow"] | None = None
        if known is not None:
            # An offline run exists at the server only once someone has sent it there.
            resume = "must" if known["online"] else "allow"
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            id=None if known is None else known["id"],
            name=subject.name,
            group=subject.group or None,
            dir=str(subject.folder),
            resume=resume,
            config=dict(subject.recipe),
            settings=_settings(),
        )

    @staticmethod
    def problem() -> str | None:
        """A run that goes online needs an API key; nobody is asked for one."""
        if wandb.setup().settings.mode in _OFFLINE or wandb.login(prompt=False):
            return None
        return "no API key is configured\nwandb login, or set WANDB_MODE=offline"

    @property
    def known(self) -> dict[str, Any]:
        """The id of the run, its address where it has one, and whether it is online."""
        run = self._run
        online = not run.offline
        return {"id": run.id, "online": online, **({"url": run.url} if online else {})}

    def tell(self, numbers: Numbers, step: int) -> None:
        """One row of the history; rows with one step become one."""
        self._run.log(numbers, step=step)

    def flush(self) -> None:
        """The library's own process writes its log at once."""

    def end(self, summary: Numbers, step: int, *, done: bool) -> None:
        """Send what is left. An unfinished run is marked as failed until it is resumed."""
        self._run.summary.update(summary)
        self._run.finish(exit_code=0 if done else 1)


def _settings() -> wandb.Settings:
    return wandb.Settings(
        console="off",
        disable_code=True,
        disable_git=True,
        disable_job_creation=True,
        save_code=False,
        silent=True,
        init_timeout=_WAIT,
        finish_timeout=_WAIT,
        x_disable_machine_info=True,
        x_disable_meta=True,
        x_disable_stats=True,
        x_save_requirements=False,
    )
