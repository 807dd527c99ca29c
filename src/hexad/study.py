"""Conducting a study: missing runs are trained, finished ones are asked once on hidden tasks.

runs/STUDY/  study.yaml   jobs.jsonl   recipes/ARM-SEED.yaml   comparison.md   comparison.json
             tuning/ARM-TRIAL/   ARM-SEED/                      run folders of ``hexad train``
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hexad.contract.durable import disk_errors, write_whole
from hexad.contract.faults import UserError
from hexad.contract.task import Split
from hexad.evidence import journal
from hexad.evidence.compare import Ask
from hexad.evidence.folder import changed, leaves, parts
from hexad.evidence.ran import Ran, Side, side
from hexad.learner import checkpoint
from hexad.learner.registry import Registry
from hexad.recipe.arm import Settings
from hexad.recipe.axes import Recipe
from hexad.recipe.dump import write
from hexad.recipe.load import load, read_as
from hexad.recipe.study import Arm, Plan, Study

JOBS = "jobs.jsonl"
"""One row an attempt at a run: its exit code, wall-clock seconds and peak memory."""
STUDY = "study.yaml"
_USERS, _INTERRUPTED = 2, 130
_KIBIBYTE = 1 if sys.platform == "darwin" else 1024
"""Bytes in the unit of ``ru_maxrss``."""


@dataclass(frozen=True, slots=True)
class Job:
    """One run: of an arm with a seed, or of one of its tuning trials."""

    name: str
    recipe: Recipe
    folder: Path


@dataclass(frozen=True, slots=True)
class Conduct:
    """How a study is conducted. ``tell`` hears what begins; ``quiet`` silences the runs.

    ``interrupted`` is asked between runs. A run that fails is noted, and the others go on.
    """

    plan: Plan
    folder: Path
    tell: Callable[[str], None]
    quiet: bool
    interrupted: Callable[[], bool]

    def __call__(self) -> list[Side] | None:
        """Train and evaluate what is missing: the arms, or ``None`` when asked to stop.

        ``folder`` was claimed. Raises ``UserError`` for a run that cannot be trained.
        """
        chosen: dict[str, Settings] = {}
        for arm in self.plan.arms:
            picked = self._tune(arm)
            if picked is None:
                return None
            chosen[arm.name] = picked
        jobs = {
            (arm.name, seed): self._job(arm, seed, chosen[arm.name])
            for seed in self.plan.study.seeds
            for arm in self.plan.arms
        }
        if not self._train(list(jobs.values())):
            return None
        whole = {key: job for key, job in jobs.items() if ended(job)}
        for job in whole.values():
            self._examine(job)
        found = []
        for arm in self.plan.arms:
            mine = {key: job for key, job in jobs.items() if key[0] == arm.name}
            runs = [job for key, job in mine.items() if key in whole]
            found.append(self._side(arm, chosen[arm.name], list(mine.values()), runs))
        return found

    # -- runs ------------------------------------------------------------------------------

    def _job(self, arm: Arm, seed: int, settings: Settings) -> Job:
        name = f"{arm.name}-{seed}"
        return Job(name, arm.recipe(seed, settings), self.folder / name)

    def _train(self, jobs: Sequence[Job]) -> bool:
        """Train what has not ended yet; false when asked to stop."""
        open_ = [job for job in jobs if not ended(job)]
        for number, job in enumerate(open_, start=1):
            if self.interrupted():
                return False
            self.tell(f"run {number} of {len(open_)}: {job.name}")
            if self._run(job) == _INTERRUPTED:
                return False
        return True

    def _run(self, job: Job) -> int:
        """One run in a process of its own, so that its memory is its own. Returns its exit code."""
        file = self.folder / "recipes" / f"{job.name}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        write(job.recipe, file)
        resume = ["--resume"] if (job.folder / "recipe.yaml").exists() else []
        words = [sys.executable, "-m", "hexad", "train", str(file), "--run", str(job.folder)]
        started = time.perf_counter()
        code, peak = apart([*words, *resume], quiet=self.quiet)
        row = {
            "job": job.name,
            "code": code,
            "seconds": time.perf_counter() - started,
            "peak_memory": peak,
            "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        }
        journal.append(self.folder / JOBS, row)
        if code == _USERS:
            fix = "see its message above; then go on with the same command"
            raise UserError(f"the run {job.name} cannot be trained", where=str(file), fix=fix)
        if code not in (0, _INTERRUPTED):
            self.tell(f"{job.name} failed with exit code {code}; the other runs go on")
        return code

    def _examine(self, job: Job) -> None:
        """Its hidden tasks, once: what was measured is never measured again."""
        attempts = self.plan.study.attempts
        (part,) = parts(job.folder)
        if any(row.get("attempts", 1) == attempts for row in part.on(str(Split.HIDDEN))):
            return
        from hexad import run  # torch, which a study that is complete does not need

        self.tell(f"hidden tasks: {job.name}")
        run.evaluate(job.folder, Split.HIDDEN, attempts=attempts)

    # -- tuning ----------------------------------------------------------------------------

    def _tune(self, arm: Arm) -> Settings | None:
        """The settings with the best success on selection, the first of equals; none untried."""
        tuning = self.plan.study.tuning
        if tuning is None or not arm.trials:
            return {}
        jobs = [
            Job(
                f"tuning-{arm.name}-{number}",
                arm.recipe(tuning.seed, settings),
                self.folder / "tuning" / f"{arm.name}-{number}",
            )
            for number, settings in enumerate(arm.trials, start=1)
        ]
        if not self._train(jobs):
            return None
        reached = {number: _selected(job) for number, job in enumerate(jobs) if ended(job)}
        scored = {number: success for number, success in reached.items() if success is not None}
        if not scored:
            fix = "see the messages above, and jobs.jsonl"
            raise UserError(f"no trial of {arm.name} was scored", where=str(self.folder), fix=fix)
        return arm.trials[max(scored, key=lambda number: scored[number])]

    # -- what came out ---------------------------------------------------------------------

    def _side(self, arm: Arm, chosen: Settings, jobs: Sequence[Job], whole: Sequence[Job]) -> Side:
        """An arm: those of its ``jobs`` that are ``whole``, and what all of them took."""
        rows = journal.rows(self.folder / JOBS)
        mine = {job.name: [row for row in rows if row["job"] == job.name] for job in jobs}
        peaks = {
            name: max((row["peak_memory"] for row in tried), default=None)
            for name, tried in mine.items()
        }
        codes = [row["code"] for tried in mine.values() for row in tried]
        machines = sorted({row["machine"] for row in rows})
        return side(
            arm.name,
            [Ran(job.folder, str(Split.HIDDEN), peaks[job.name]) for job in whole],
            matched=arm.matched,
            trials=len(arm.trials),
            chosen=chosen,
            failed=sum(code not in (0, _INTERRUPTED) for code in codes),
            machine="; ".join(machines) or None,
        )


def ask(plan: Plan, changes: Sequence[str]) -> Ask:
    """The question that the study file asks; ``changes`` were made to it since it began."""
    study = plan.study
    return Ask(
        name=study.name,
        metric=study.metric,
        margin=study.margin,
        split=str(Split.HIDDEN),
        budget=plan.budget,
        points=study.points,
        offers=plan.offered,
        changes=tuple(changes),
    )


def apart(words: Sequence[str], *, quiet: bool) -> tuple[int, int]:
    """Run a command in a process of its own: exit code, and its peak resident bytes.

    They are those of its largest process; ``quiet`` drops what it prints, errors apart.
    """
    with subprocess.Popen(words, stdout=subprocess.DEVNULL if quiet else None) as child:
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    return child.returncode, usage.ru_maxrss * _KIBIBYTE


def ended(job: Job) -> bool:
    """Whether the run is whole. Raises ``UserError`` where the folder holds another recipe's."""
    path = job.folder / "recipe.yaml"
    if not path.exists():
        return False
    if unlike := changed(load(path), job.recipe):
        raise UserError(
            f"the study has changed since {job.name} was run: {', '.join(unlike[:5])}",
            where=str(job.folder),
            fix="name another folder with --out; what was run stays as it is",
        )
    found = checkpoint.newest(job.folder)
    return found is not None and bool(Registry().read(found.path / "state", "loop")["ended"])


def claim(plan: Plan, folder: Path) -> list[str]:
    """Make ``folder`` this study's: its file is kept there, as it was when the study began.

    Returns the keys that have changed since then: what is decided after looking must be told.
    """
    path, text = folder / STUDY, plan.file.read_bytes()
    with disk_errors("make the study's folder", folder):
        folder.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            write_whole(path, text, "study")
    before, now = (leaves(s.model_dump(mode="json")) for s in (read_as(Study, path), plan.study))
    return sorted(key for key in {*before, *now} if before.get(key) != now.get(key))


def _selected(job: Job) -> float | None:
    """Success on selection at the end of the budget; ``None`` where nothing was scored."""
    (part,) = parts(job.folder)
    rows = part.on(str(Split.SELECTION))
    return float(rows[-1]["success"]) if rows else None
