"""Conducting a study: missing runs are trained, finished ones are asked once on hidden tasks.

runs/STUDY/  study.yaml   jobs.jsonl   recipes/ARM-SEED.yaml   comparison.md   comparison.json
             tuning/ARM-TRIAL/   ARM-SEED/                      run folders of ``hexad train``
"""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hexad.apart import apart
from hexad.contract.durable import disk_errors, write_whole
from hexad.contract.faults import UserError
from hexad.contract.task import Split
from hexad.evidence import journal
from hexad.evidence.compare import Ask
from hexad.evidence.folder import changed, leaves, parts
from hexad.evidence.ran import Ran, Side, last_step, side
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


class _Stopped(Exception):
    """The study was asked to stop."""


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

        ``folder`` was claimed. Raises ``UserError`` where the first run of all is refused; later
        ones are left out, and :func:`refused` names them.
        """
        try:
            return self._sides()
        except _Stopped:
            return None

    def _sides(self) -> list[Side]:
        arms = self.plan.arms
        tuned = {arm.name: self._tune(arm) for arm in arms}
        chosen = {name: settings for name, settings in tuned.items() if settings is not None}
        jobs = {
            (arm.name, seed): self._job(arm, seed, chosen[arm.name])
            for seed in self.plan.study.seeds
            for arm in arms
            if arm.name in chosen
        }
        self._train(list(jobs.values()))
        whole = {key: job for key, job in jobs.items() if ended(job)}
        for job in whole.values():
            self._examine(job)
        runs = {arm.name: [job for key, job in whole.items() if key[0] == arm.name] for arm in arms}
        return [self._side(arm, chosen.get(arm.name, {}), runs[arm.name]) for arm in arms]

    # -- runs ------------------------------------------------------------------------------

    def _job(self, arm: Arm, seed: int, settings: Settings) -> Job:
        name = _named(arm, seed)
        return Job(name, arm.recipe(seed, settings), self.folder / name)

    def _train(self, jobs: Sequence[Job]) -> None:
        """Train what has not ended yet, and see what it came to. Raises ``_Stopped``."""
        open_ = [job for job in jobs if not ended(job)]
        for number, job in enumerate(open_, start=1):
            if self.interrupted():
                raise _Stopped
            self.tell(f"run {number} of {len(open_)}: {job.name}")
            code = self._run(job)
            if code == _INTERRUPTED:
                raise _Stopped
            if code == 0:
                self._select(job)

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
        if code == _USERS and self._nothing_ran(job):
            fix = "see its message above; then go on with the same command"
            raise UserError(f"the run {job.name} cannot be trained", where=str(file), fix=fix)
        if code not in (0, _INTERRUPTED):
            how = "was refused" if code == _USERS else f"failed with exit code {code}"
            self.tell(f"{job.name} {how}; the other runs go on")
        return code

    def _nothing_ran(self, job: Job) -> bool:
        """Whether the study is as good as not begun, so that nothing is lost by stopping it."""
        codes = {row["code"] for row in journal.rows(self.folder / JOBS)}
        return codes == {_USERS} and checkpoint.newest(job.folder) is None

    def _select(self, job: Job) -> None:
        """Its selection tasks at the end, where no share of the budget was crossed there."""
        (part,) = parts(job.folder)
        split, last = str(Split.SELECTION), last_step(part)
        if any(row["split"] == split and row["step"] == last for row in part.evaluations):
            return
        from hexad import run  # torch, which a study that is complete does not need

        self.tell(f"selection tasks at the end: {job.name}")
        run.evaluate(job.folder, Split.SELECTION, tasks=part.recipe.run.evaluation.tasks)

    def _examine(self, job: Job) -> None:
        """Its hidden tasks, once: what was measured is never measured again."""
        self._select(job)
        attempts = self.plan.study.attempts
        (part,) = parts(job.folder)
        if any(row.get("attempts", 1) == attempts for row in part.on(str(Split.HIDDEN))):
            return
        from hexad import run

        self.tell(f"hidden tasks: {job.name}")
        run.evaluate(job.folder, Split.HIDDEN, attempts=attempts)

    # -- tuning ----------------------------------------------------------------------------

    def _tune(self, arm: Arm) -> Settings | None:
        """The settings with the best success on selection, the first of equals; none untried.

        ``None`` where no trial was scored, so that nothing can be chosen.
        """
        tuning = self.plan.study.tuning
        if tuning is None or not arm.trials:
            return {}
        jobs = [
            Job(
                _trial(arm, number),
                arm.recipe(tuning.seed, settings),
                self.folder / "tuning" / f"{arm.name}-{number}",
            )
            for number, settings in enumerate(arm.trials, start=1)
        ]
        self._train(jobs)
        reached = {number: _selected(job) for number, job in enumerate(jobs) if ended(job)}
        scored = {number: success for number, success in reached.items() if success is not None}
        if not scored:
            self.tell(f"no trial of {arm.name} was scored; the other arms go on")
            return None
        return arm.trials[max(scored, key=lambda number: scored[number])]

    # -- what came out ---------------------------------------------------------------------

    def _side(self, arm: Arm, chosen: Settings, whole: Sequence[Job]) -> Side:
        """An arm: its runs that are ``whole``, and what all of its attempts took."""
        rows = journal.rows(self.folder / JOBS)
        mine = [row for row in rows if row["job"] in _names(arm, self.plan.study)]
        peaks = {
            job.name: max((r["peak_memory"] for r in mine if r["job"] == job.name), default=None)
            for job in whole
        }
        machines = sorted({row["machine"] for row in rows})
        return side(
            arm.name,
            [Ran(job.folder, str(Split.HIDDEN), peaks[job.name]) for job in whole],
            matched=arm.matched,
            trials=len(arm.trials),
            chosen=chosen,
            failed=sum(row["code"] not in (0, _INTERRUPTED) for row in mine),
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


def refused(plan: Plan, folder: Path) -> list[str]:
    """Runs of the study whose last attempt was refused: what the user can mend."""
    names = {name for arm in plan.arms for name in _names(arm, plan.study)}
    last = {row["job"]: row["code"] for row in journal.rows(folder / JOBS)}
    return [name for name, code in last.items() if name in names and code == _USERS]


def _names(arm: Arm, study: Study) -> set[str]:
    """Names of an arm's jobs, its tuning trials among them."""
    trials = range(1, len(arm.trials) + 1)
    return {_trial(arm, number) for number in trials} | {_named(arm, seed) for seed in study.seeds}


def _named(arm: Arm, seed: int) -> str:
    return f"{arm.name}-{seed}"


def _trial(arm: Arm, number: int) -> str:
    return f"tuning-{arm.name}-{number}"


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
