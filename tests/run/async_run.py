"""Short real asynchronous runs, and what must hold of their folders whatever was killed."""

import json
import os
import subprocess
from pathlib import Path

import short_run

import hexad
from hexad.contract.store import Store
from hexad.learner import checkpoint
from hexad.learner.registry import Registry
from hexad.schedule.wal import SUFFIX

RECIPE = """
name: streamed
method: areal
task:
  environment: calculator
  limits: {turns: 3, turn_tokens: 8, context_tokens: 160}
policy: {model: "builtin:tiny"}
feedback: {mapping: "dense:DenseMapping"}
data: {groups: 2, group_size: 2}
timing: {max_lag: 1, workers: {count: 1, restarts: 20}}
update:
  minibatches: 1
  optimizer: {lr: 1e-4}
budget: {episodes: 24}
run:
  seed: 3
  evaluation: {every: null, final: none}
  checkpoints: {every: 1, keep: 2}
system: {engine_rows: 4, threads: 1}
"""
SIZE = 2
"""Members of a group."""
MARK = "HEXAD_TEST_RUN"
"""Variable that every process of a run inherits: it finds who was left behind."""


def write_recipe(folder: Path, **changes: str) -> Path:
    """The recipe, with ``changes`` of its text."""
    text = RECIPE
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    path = folder / "streamed.yaml"
    path.write_text(text)
    return path


def start(recipe: Path, run: Path, *words: str, **environment: str):
    """The real command in its own process, resumed where the run has a checkpoint."""
    begun = (run / "checkpoints").is_dir() and "--resume" not in words
    more = ("--resume",) if begun else ()
    here = Path(__file__).parent
    folders = (here, here.parent, here.parent / "schedule", Path(hexad.__file__).parent.parent)
    paths = os.pathsep.join(map(str, folders))
    usual = {MARK: str(run), "PYTHONPATH": paths}
    return short_run.start(recipe, run, *words, *more, **usual | environment)


def finish(process: subprocess.Popen[str]) -> str:
    """The output of a process that must succeed; it does not outlive the wait for it."""
    output = ended(process)
    assert process.returncode == 0, output
    return output


def ended(process: subprocess.Popen[str], seconds: float = 600.0) -> str:
    """The output of a process that ends by itself."""
    try:
        return process.communicate(timeout=seconds)[0]
    finally:
        process.kill()


def left_behind(run: Path) -> list[int]:
    """Ids of the live processes that belong to ``run``."""
    needle, found = f"{MARK}={run}".encode(), []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                mine = needle in (entry / "environ").read_bytes().split(b"\0")
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if mine and state not in "ZX" and int(entry.name) != os.getpid():
                found.append(int(entry.name))
    return found


def rows(run: Path, name: str) -> list[dict]:
    """Rows of a log of the run."""
    path = run / name
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def number(name: str) -> int:
    """The task number in the name of a group or an episode."""
    return int(name.split("-")[1].partition(".")[0])


def pending(run: Path) -> tuple[dict, set[str], set[str]]:
    """State of the source, episodes in flight and episodes that wait, by the newest checkpoint."""
    found = checkpoint.newest(run)
    state = Registry().read(found.path / "state", "source")
    waiting = {f"{g[0]}-{member}" for g in state["groups"]["groups"] for member in g[5]}
    return state, {order["episode_id"] for order, _ in state["flights"]}, waiting


def require_sound(run: Path) -> None:
    """Everything that must hold of a run that has ended, whatever was killed on the way."""
    assert left_behind(run) == []
    for log in ("metrics.jsonl", "ledger.jsonl"):
        steps = [row["step"] for row in rows(run, log)]
        assert steps == [*range(len(steps))], (log, steps)  # no superseded row
    books = rows(run, "ledger.jsonl")[-1]["books"]
    outs = books["trained"] + books["lost"] + books["pending"]
    outs += sum(books["dropped"].values()) + sum(books["auxiliary"].values())
    assert books["generated"] + books["supplied"] == outs
    source, flying, waiting = pending(run)
    decided = [e.episode_id for e in Store(run / "episodes").read()]
    assert len(decided) == len(set(decided))
    assert not set(decided) & (flying | waiting)
    assert {number(name) for name in (*decided, *flying, *waiting)} <= set(range(source["cursor"]))
    governor = source["governor"]
    assert (governor["in_flight"], governor["queued"]) == (len(flying), len(waiting))
    left = governor["exits"].get("lost", 0)  # under way when the run ended: told of, in no store
    assert sum(governor["exits"].values()) == len(decided) + left
    assert source["cursor"] * SIZE == len(decided) + left + len(flying) + len(waiting)
    logs = {path.name.removesuffix(SUFFIX) for path in (run / "wal").glob(f"*{SUFFIX}")}
    assert logs <= flying | waiting, logs
    killed = rows(run, "ledger.jsonl")[-1]["killed"]
    lost = [row for row in rows(run, "lost.jsonl") if "episodes" in row]
    for key in killed:
        assert killed[key] == sum(row[key] for row in lost), (key, killed, lost)
