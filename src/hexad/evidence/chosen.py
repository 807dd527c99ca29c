"""A checkpoint by the name that a user gives it."""

from __future__ import annotations

from pathlib import Path

from hexad.contract.faults import UserError
from hexad.evidence import selection
from hexad.learner.checkpoint import Checkpoint, at, newest

LAST, BEST = "last", "best"
"""The newest, and that of the highest success on ``selection``."""


def chosen(run_dir: Path, which: str) -> Checkpoint:
    """The whole checkpoint of the run in ``run_dir`` that ``which`` names.

    That is ``last``, ``best`` or the number of a version. Raises ``UserError`` without it.
    """
    if which.isdecimal():
        return at(run_dir, int(which))
    if which == BEST:
        choice = selection.best(run_dir)
        if choice is None:
            what = "no version was evaluated on selection and has a checkpoint"
            fix = "set run.evaluation and run.checkpoints to meet, or give a version"
            raise UserError(what, where=str(run_dir), fix=fix)
        return at(run_dir, choice.step)
    if which != LAST:
        fix = f"give {LAST}, {BEST}, or the number of a version"
        raise UserError(f"there is no checkpoint {which!r}", where="--checkpoint", fix=fix)
    found = newest(run_dir)
    if found is None:
        fix = "train first, or resume the run until its first checkpoint"
        raise UserError("this run has no whole checkpoint", where=str(run_dir), fix=fix)
    return found
