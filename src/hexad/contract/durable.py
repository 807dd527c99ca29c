"""Files that survive a kill: written whole, forced to disk, then renamed into place."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hexad.contract import crash
from hexad.contract.faults import UserError

_FIXES = {
    errno.ENOSPC: "free some disk space; everything committed before is whole, so --resume works",
    errno.EFBIG: "raise the limit on file sizes (ulimit -f); what is committed is whole: --resume",
    errno.EDQUOT: "raise the quota; everything committed before is whole, so --resume works",
    errno.EROFS: "choose a run folder on a writable disk",
    errno.EACCES: "choose a run folder that you may write to",
    errno.EPERM: "choose a run folder that you may write to",
    errno.EIO: "check the disk; everything committed before is whole, so --resume works",
}


@contextmanager
def disk_errors(doing: str, path: Path) -> Iterator[None]:
    """Turn a failure of the disk (full, read-only, forbidden) into a ``UserError`` on ``path``."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FIXES:
            raise
        what = f"cannot {doing}: {os.strerror(error.errno)}"
        raise UserError(what, where=str(path), fix=_FIXES[error.errno]) from error


def sync_file(path: Path) -> None:
    """Force the bytes of ``path`` to disk."""
    _sync(path, os.O_RDONLY)


def sync_folder(path: Path) -> None:
    """Force the names in the folder ``path`` to disk."""
    _sync(path, os.O_RDONLY | os.O_DIRECTORY)


def sync_tree(path: Path) -> None:
    """Force every file and folder below ``path``, and ``path`` itself, to disk."""
    for folder, _, files in os.walk(path, topdown=False):
        for name in files:
            sync_file(Path(folder) / name)
        sync_folder(Path(folder))


def write_whole(path: Path, data: bytes | memoryview, label: str) -> None:
    """Write ``data`` to ``path`` so that the name never shows a part of it.

    The bytes go to ``.NAME.tmp`` in the same folder, are forced to disk and renamed. Crash points:
    ``LABEL:mid-part`` with half of the bytes on disk, ``LABEL:before-rename`` with all of them. A
    failed write removes its temporary file.
    """
    temporary = temporary_name(path)
    view, half = memoryview(data), len(data) // 2
    try:
        with open(temporary, "wb") as file:
            file.write(view[:half])
            file.flush()
            os.fsync(file.fileno())
            crash.point(f"{label}:mid-part")
            file.write(view[half:])
            file.flush()
            os.fsync(file.fileno())
        crash.point(f"{label}:before-rename")
        os.replace(temporary, path)
        sync_folder(path.parent)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def temporary_name(path: Path) -> Path:
    """The hidden name under which ``path`` is written."""
    return path.with_name(f".{path.name}.tmp")


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
