"""Checkpoints: written under a temporary name, renamed whole, found and resumed.

checkpoints/step_N/  policy/ (Hugging Face layout)  state/ (safetensors + JSON)  manifest.json
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from safetensors import SafetensorError

from hexad.contract import crash
from hexad.contract.durable import disk_errors, sync_file, sync_folder, sync_tree
from hexad.contract.faults import UserError
from hexad.contract.store import Store
from hexad.learner import manifest
from hexad.learner.manifest import Manifest, StoreMark
from hexad.learner.registry import Registry

_STEP, _REPLACED, _TEMPORARY = "step_", ".old-step_", ".tmp-"


@dataclass(frozen=True, slots=True)
class Journal:
    """What grows beside the checkpoints: log files inside the run folder, and the episode store.

    ``keep`` whole checkpoints stay on disk, the newest, and beside them that of step ``best``.
    """

    logs: tuple[Path, ...] = ()
    store: Store | None = None
    keep: int = 2
    best: int | None = None


@dataclass(frozen=True, slots=True)
class Skipped:
    """A checkpoint that is not whole, and why."""

    path: Path
    why: str


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A whole checkpoint; ``skipped`` are the newer ones that were not whole."""

    path: Path
    step: int
    manifest: Manifest
    skipped: tuple[Skipped, ...] = ()

    @property
    def policy(self) -> Path:
        """The folder that ``from_pretrained`` opens."""
        return self.path / "policy"


@dataclass(frozen=True, slots=True)
class Rewound:
    """What a resume threw away: work after the checkpoint, to be booked as lost.

    ``log_rows`` counts cut lines by log. ``torn`` episode parts could not be counted and were
    renamed to ``*.torn``; ``unfinished`` ones had never been committed.
    """

    episodes: int = 0
    sampled_tokens: int = 0
    log_rows: Mapping[str, int] = field(default_factory=dict)
    torn: tuple[Path, ...] = ()
    unfinished: tuple[str, ...] = ()


def write(
    run_dir: Path,
    step: int,
    save_policy: Callable[[Path], None],
    registry: Registry,
    journal: Journal,
) -> Path:
    """Write checkpoint ``step`` of the run and return its folder.

    ``save_policy`` fills the folder it is given. Then small parts of the store are merged and old
    checkpoints pruned. A checkpoint of the same step is replaced. Crash point:
    ``checkpoint:before-rename``. Raises ``UserError`` when the disk is full; the checkpoints that
    were whole before stay so.
    """
    folder = run_dir / "checkpoints"
    temporary, final = folder / f"{_TEMPORARY}{_STEP}{step}", folder / f"{_STEP}{step}"
    with _disk_errors(f"write checkpoint {step}", folder):
        folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(temporary, ignore_errors=True)
        try:
            _fill(temporary, step, save_policy, registry, _marks(run_dir, journal))
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        crash.point("checkpoint:before-rename")
        _put_in_place(temporary, final)
        _prune(folder, step, journal)
    if journal.store is not None:
        journal.store.compact()
    return final


def newest(run_dir: Path) -> Checkpoint | None:
    """The newest whole checkpoint, or ``None`` where none was ever finished.

    Half-written and damaged ones are passed over and listed in ``Checkpoint.skipped``. Raises
    ``UserError`` where finished checkpoints exist and every one is damaged.
    """
    found, skipped = scan(run_dir)
    if found is None and any(not _unfinished(item.path) for item in skipped):
        raise UserError(
            "no checkpoint is whole: " + "; ".join(f"{s.path.name}: {s.why}" for s in skipped),
            where=str(run_dir / "checkpoints"),
            fix="restore a checkpoint from a copy, or start a new run folder",
        )
    return found


def at(run_dir: Path, step: int) -> Checkpoint:
    """The whole checkpoint of ``step``. Raises ``UserError`` where there is none."""
    folder = run_dir / "checkpoints"
    known = {_step(path): path for path in reversed(list(_finished(folder)))}
    try:
        return Checkpoint(known[step], step, manifest.verify(known[step]))
    except KeyError:
        what = f"version {step} has no checkpoint"
    except ValueError as error:
        what = f"the checkpoint of version {step} is not whole: {error}"
    listed = ", ".join(str(each) for each in sorted(known) if each != step) or "none is there"
    raise UserError(what, where=str(folder), fix=f"choose another: {listed}")


def kept(run_dir: Path) -> dict[int, Path]:
    """Step -> policy folder of every whole checkpoint."""
    found = {}
    for path in _finished(run_dir / "checkpoints"):
        try:
            manifest.verify(path)
        except ValueError:
            continue
        found[int(path.name.removeprefix(_STEP))] = path / "policy"
    return found


def scan(run_dir: Path) -> tuple[Checkpoint | None, tuple[Skipped, ...]]:
    """The newest whole checkpoint, and everything newer or unfinished that is not whole."""
    folder = run_dir / "checkpoints"
    names = sorted(os.listdir(folder)) if folder.is_dir() else []
    skipped = [
        Skipped(folder / name, "it was being written or deleted when the process ended")
        for name in names
        if name.startswith(_TEMPORARY)
    ]
    for path in _finished(folder):
        try:
            record = manifest.verify(path)
        except ValueError as error:
            skipped.append(Skipped(path, str(error)))
            continue
        return Checkpoint(path, record.step, record, tuple(skipped)), tuple(skipped)
    return None, tuple(skipped)


def resume(checkpoint: Checkpoint, registry: Registry, journal: Journal | None) -> Rewound:
    """Restore ``registry`` and rewind logs and store to ``checkpoint``.

    ``journal`` is ``None`` on ranks that own no disk. Everything that can be refused is refused
    before anything is changed: a log shorter than recorded, missing episodes, or state that does
    not fit raise ``UserError``.
    """
    run_dir, record = checkpoint.path.parent.parent, checkpoint.manifest
    if journal is None:
        registry.load(checkpoint.path / "state")
        return Rewound()
    cuts = {name: _log_rows(run_dir / name, offset) for name, offset in record.logs.items()}
    if journal.store is not None and record.store is not None:
        _require_episodes(journal.store, record.store)
    registry.load(checkpoint.path / "state")
    with _disk_errors("rewind the logs", run_dir):
        for name, offset in record.logs.items():
            _truncate(run_dir / name, offset)
    if journal.store is None or record.store is None:
        return Rewound(log_rows=cuts)
    cut = journal.store.truncate(record.store.last_step)
    return Rewound(cut.episodes, cut.sampled_tokens, cuts, cut.torn, cut.unfinished)


def _marks(run_dir: Path, journal: Journal) -> tuple[dict[str, int], StoreMark | None]:
    logs = {}
    for path in journal.logs:
        if path.exists():
            sync_file(path)
        name = path.relative_to(run_dir).as_posix()
        logs[name] = path.stat().st_size if path.exists() else 0
    store = journal.store
    return logs, None if store is None else StoreMark(store.last_step, store.count())


def _fill(
    folder: Path,
    step: int,
    save_policy: Callable[[Path], None],
    registry: Registry,
    marks: tuple[dict[str, int], StoreMark | None],
) -> None:
    (folder / "policy").mkdir(parents=True)
    save_policy(folder / "policy")
    registry.save(folder / "state")
    logs, store = marks
    record = Manifest(step, manifest.survey(folder), logs, store)
    sync_tree(folder)
    (folder / manifest.NAME).write_bytes(record.dump())
    sync_file(folder / manifest.NAME)
    sync_folder(folder)


def _put_in_place(temporary: Path, final: Path) -> None:
    """Rename, keeping a former checkpoint of the step findable until the new one is there."""
    replaced = final.with_name(f".old-{final.name}")
    if final.exists():
        _discard(replaced)
        os.rename(final, replaced)
    os.rename(temporary, final)
    sync_folder(final.parent)
    _discard(replaced)


def _prune(folder: Path, step: int, journal: Journal) -> None:
    """Keep the newest up to ``step``, and the best; later ones are of a past that was rewound."""
    finished = list(_finished(folder))
    kept = [path for path in finished if _step(path) <= step][: max(journal.keep, 1)]
    for path in finished:
        if path not in kept and _step(path) != journal.best:
            _discard(path)
    for path in folder.glob(f"{_TEMPORARY}*"):
        shutil.rmtree(path)


def _discard(path: Path) -> None:
    """Delete a checkpoint; a kill in between leaves nothing that looks like one."""
    if path.exists():
        doomed = path.with_name(f"{_TEMPORARY}discarded-{path.name.lstrip('.')}")
        os.rename(path, doomed)
        shutil.rmtree(doomed)


def _finished(folder: Path) -> Iterator[Path]:
    """Folders named as checkpoints, newest first; a replaced one after its replacement."""
    names = os.listdir(folder) if folder.is_dir() else []
    paths = [folder / name for name in names if _tail(name).isdigit()]
    yield from sorted(paths, key=lambda path: (-_step(path), path.name.startswith(".")))


def _tail(name: str) -> str:
    for prefix in (_STEP, _REPLACED):
        if name.startswith(prefix):
            return name.removeprefix(prefix)
    return ""


def _step(path: Path) -> int:
    return int(_tail(path.name))


def _unfinished(path: Path) -> bool:
    return path.name.startswith(_TEMPORARY)


def _log_rows(path: Path, offset: int) -> int:
    """Rows of a log after ``offset``; a log that ends before it was damaged."""
    size = path.stat().st_size if path.exists() else 0
    if size < offset:
        raise UserError(
            f"the log has {size} bytes, but the checkpoint was written at byte {offset}",
            where=str(path),
            fix="restore the log from a copy, or start a new run folder",
        )
    if size == offset:
        return 0
    with open(path, "rb") as file:
        file.seek(offset)
        tail = file.read()
    return tail.count(b"\n") + (not tail.endswith(b"\n"))


def _truncate(path: Path, offset: int) -> None:
    if path.exists() and path.stat().st_size > offset:
        os.truncate(path, offset)
        sync_file(path)


def _require_episodes(store: Store, mark: StoreMark) -> None:
    found = store.count(mark.last_step)
    if found != mark.episodes:
        raise UserError(
            f"the store holds {found} of the {mark.episodes} episodes up to step "
            f"{mark.last_step} that the checkpoint counted",
            where=str(store.folder),
            fix="restore the missing part-*.parquet files from a copy, or start a new run folder",
        )


@contextmanager
def _disk_errors(doing: str, path: Path) -> Iterator[None]:
    """Failures of the disk as ``UserError``; safetensors wraps them in an error of its own."""
    try:
        with disk_errors(doing, path):
            yield
    except SafetensorError as error:
        if "(os error 28)" not in str(error):
            raise
        fix = "free some disk space; everything committed before is whole, so --resume works"
        raise UserError(f"cannot {doing}: the disk is full", where=str(path), fix=fix) from error
