"""How old is an episode: the oldest policy version behind a token that is trained on."""

from __future__ import annotations

from hexad.contract.episode import Episode
from hexad.contract.segment import NO_VERSION


def oldest_version(episode: Episode) -> int | None:
    """The oldest version that sampled anything up to the last trained token, in segment order.

    What was sampled before a trained token is in its context, or a context before it: whether that
    was itself trained on does not matter, and what was sampled after it does not either. ``None``
    where no token is trained on (all weights 0), or where no policy sampled. Segments whose arrays
    differ in length are left out: admission refuses them by their own reason.
    """
    found: int | None = None
    behind: int | None = None
    for segment in episode.segments:
        if not len(segment.version) == len(segment.action) == len(segment.weight):
            continue
        known = segment.action & (segment.version > NO_VERSION)
        trained = (known & (segment.weight > 0)).nonzero()[0]
        if trained.size:
            before = segment.version[: int(trained[-1]) + 1]
            found = _older(behind, int(before[known[: len(before)]].min()))
        if known.any():
            behind = _older(behind, int(segment.version[known].min()))
    return found


def lag(episode: Episode, learner: int) -> int | None:
    """Learner version minus :func:`oldest_version`; ``None`` where that is."""
    oldest = oldest_version(episode)
    return None if oldest is None else learner - oldest


def _older(first: int | None, second: int) -> int:
    return second if first is None else min(first, second)
