"""Stored episodes judged again by the present verifier: what would have been rewarded otherwise?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from hexad.contract.digest import canonical_json
from hexad.contract.durable import disk_errors, write_whole
from hexad.contract.ending import CENSORED
from hexad.contract.episode import Episode
from hexad.contract.verdict import Verdict
from hexad.evidence.archive import Archive

Row = dict[str, Any]


def rescore(archive: Archive) -> Row:
    """Judge every stored episode and keep the verdicts in a new file beside the run's own.

    The table counts (verdict before, verdict now). ``agreement`` is the share of those scored both
    times that are correct both times or neither time. The stored episodes stay as they are.
    """
    changes: Counter[tuple[str, str]] = Counter()
    before: Counter[str] = Counter()
    both, agreed, rows = 0, 0, []
    for episode, verdict in _judged(archive):
        old = episode.verdict
        was = "not_judged" if old is None else str(old.status)
        changes[was, str(verdict.status)] += 1
        before[episode.provenance.verifier] += 1
        if old is not None and old.scored and verdict.scored:
            both += 1
            agreed += old.success == verdict.success
        rows.append(
            {
                "episode_id": episode.episode_id,
                "before": was,
                "now": str(verdict.status),
                "score": verdict.score,
                "evidence": verdict.evidence,
            }
        )
    digest = archive.feedback.digest
    path = _free(archive.part.folder, digest)
    text = "".join(f"{canonical_json(row)}\n" for row in rows)
    with disk_errors("write the verdicts", path):
        write_whole(path, text.encode(), "rescore")
    return {
        "stage": archive.part.name,
        "episodes": len(rows),
        "changes": [
            {"before": was, "now": now, "episodes": count}
            for (was, now), count in sorted(changes.items())
        ],
        "compared": both,
        "agreement": agreed / both if both else None,
        "digests": {"before": dict(before), "now": digest},
        "written": str(path),
    }


def _judged(archive: Archive) -> Iterator[tuple[Episode, Verdict]]:
    """Each episode that a verifier may see, with its verdict now; some are judged at once."""

    def judge(episode: Episode) -> Verdict | None:
        task, transcript = archive.task(episode), archive.transcript(episode)
        return archive.feedback.judge(task, episode, transcript)

    with ThreadPoolExecutor(archive.recipe.system.tool_workers) as threads:
        for step in archive.steps:
            episodes = [e for e in archive.episodes([step]) if e.ending.kind not in CENSORED]
            for episode in episodes:
                archive.task(episode)  # here, as the tasks that are known have one writer
            for episode, verdict in zip(episodes, threads.map(judge, episodes), strict=True):
                if verdict is not None:
                    yield episode, verdict


def _free(folder: Path, digest: str) -> Path:
    """A name that nothing has yet."""
    path, number = folder / f"rescored-{digest[:12]}.jsonl", 2
    while path.exists():
        path, number = folder / f"rescored-{digest[:12]}-{number}.jsonl", number + 1
    return path
