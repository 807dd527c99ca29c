"""Seeds crossed with tasks: intervals, a test and the power of a mean over both.

Scores are arrays ``[S, T]``: every one of S seeds tried every one of T tasks. Two arms that share
both are compared by the array of their differences, so that luck which they share cancels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import mannwhitneyu, nct, norm, t, trim_mean

Scores = NDArray[np.float64]
DRAWS, DRAW_SEED, CONFIDENCE = 10_000, 0, 0.95
_CHUNK = 1000
_MOST_SEEDS = 200


def bootstrap(scores: Scores, draws: int = DRAWS, seed: int = DRAW_SEED) -> Scores:
    """Means of ``draws`` resamples of rows *and* columns of ``scores`` [S, T], with replacement.

    Owen 2007, The pigeonhole bootstrap: it counts what is left over beside rows and columns three
    times, and (S - 1) / S of the rows' variance: with few seeds it is too narrow where seeds are
    what varies, which is why a verdict also asks :func:`test`. The draws depend on shape and seed
    alone, so arms that are compared meet the same ones.
    """
    _require(scores)
    rows, columns = scores.shape
    generator = np.random.default_rng(seed)
    means = []
    for begun in range(0, draws, _CHUNK):
        size = min(_CHUNK, draws - begun)
        row = generator.multinomial(rows, np.full(rows, 1 / rows), size=size)
        column = generator.multinomial(columns, np.full(columns, 1 / columns), size=size)
        means.append(((column @ scores.T) * row).sum(axis=1) / (rows * columns))
    return np.concatenate(means)


def interval(means: Scores, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """The percentile interval of resampled ``means``."""
    tail = (1.0 - confidence) / 2.0
    low, high = np.quantile(means, [tail, 1.0 - tail])
    return float(low), float(high)


@dataclass(frozen=True, slots=True)
class Variance:
    """What varies in differences [S, T]: mean squares of seeds, and of tasks beyond the rest.

    ``seeds`` = MS_seeds, ``tasks`` = max(MS_tasks - MS_rest, 0), 0 for a single task.
    """

    mean: float
    seeds: float
    tasks: float
    shape: tuple[int, int]

    @classmethod
    def of(cls, scores: Scores) -> Variance:
        """Two-way analysis of variance without replication. Raises ``ValueError`` below 2 seeds."""
        _require(scores)
        rows, columns = scores.shape
        if rows < 2:
            raise ValueError("the variance over seeds needs two of them")
        mean = float(scores.mean())
        by_row, by_column = scores.mean(axis=1), scores.mean(axis=0)
        seeds = columns * float(((by_row - mean) ** 2).sum()) / (rows - 1)
        if columns == 1:
            return cls(mean, seeds, 0.0, (rows, columns))
        tasks = rows * float(((by_column - mean) ** 2).sum()) / (columns - 1)
        rest = scores - by_row[:, None] - by_column[None, :] + mean
        left = float((rest**2).sum()) / ((rows - 1) * (columns - 1))
        return cls(mean, seeds, max(tasks - left, 0.0), (rows, columns))

    def error(self, seeds: int) -> float:
        """Standard error of the mean with ``seeds`` seeds and the same number of tasks."""
        rows, columns = self.shape
        return float(np.sqrt(self.seeds / (seeds * columns) + self.tasks / (rows * columns)))

    def freedom(self, seeds: int) -> float:
        """Degrees of freedom: (MS_seeds + tasks)^2 / (MS_seeds^2 / (S - 1)).

        Source: Hillis 2007, UNVERIFIED: the formula is from memory.
        ``inf`` where seeds do not vary.
        """
        if self.seeds == 0.0:
            return float("inf")
        # Tasks count by the seeds that they were met with.
        tasks = self.tasks * seeds / self.shape[0]
        return (self.seeds + tasks) ** 2 / (self.seeds**2 / (seeds - 1))


@dataclass(frozen=True, slots=True)
class Test:
    """Two p-values of a mean difference: that there is none, and that it is beyond the margin."""

    error: float
    freedom: float
    different: float
    within: float


def test(variance: Variance, margin: float) -> Test:
    """t-tests of a mean with seeds and tasks as random, and the margin's two one-sided ones.

        t = mean / sqrt((MS_seeds + max(MS_tasks - MS_rest, 0)) / (S T))

    The analysis of several readers of the same cases (Dorfman, Berbaum and Metz 1992) with the
    degrees of freedom of Hillis 2007: readers are seeds, cases are tasks. Without any variance a
    mean that is not 0 is certain.
    """
    seeds = variance.shape[0]
    error, freedom, mean = variance.error(seeds), variance.freedom(seeds), variance.mean
    if error == 0.0:
        return Test(error, freedom, float(mean == 0.0), float(abs(mean) >= margin))
    law = norm if np.isinf(freedom) else t(freedom)
    different = 2.0 * float(law.sf(abs(mean) / error))
    within = max(float(law.sf((mean + margin) / error)), float(law.cdf((mean - margin) / error)))
    return Test(error, freedom, different, within)


def seeds_needed(
    variance: Variance, margin: float, alpha: float = 0.05, power: float = 0.8
) -> int | None:
    """Fewest seeds (3 or more) with which a difference of ``margin`` is found with ``power``.

    From the variance observed, by the non-central t, with as many tasks. ``None`` where 200 do not
    suffice: then tasks are too few.
    """
    for seeds in range(3, _MOST_SEEDS + 1):
        error, freedom = variance.error(seeds), variance.freedom(seeds)
        if error == 0.0:
            return seeds
        shift = margin / error
        if np.isinf(freedom):
            edge = float(norm.isf(alpha / 2.0))
            found = float(norm.sf(edge - shift) + norm.cdf(-edge - shift))
        else:
            edge = float(t.isf(alpha / 2.0, freedom))
            found = float(nct.sf(edge, freedom, shift) + nct.cdf(-edge, freedom, shift))
        if found >= power:
            return seeds
    return None


def interquartile_mean(scores: Scores) -> float:
    """Mean of the middle half of all ``scores``: int(n / 4) are left out at each end (rliable)."""
    return float(trim_mean(scores, 0.25, axis=None))


def probability_of_improvement(scores: Scores, base: Scores) -> float:
    """P(X > Y) + P(X = Y) / 2 of runs X of an arm and Y of the base, averaged over columns.

    Mann-Whitney's U over the number of pairs (rliable). Arrays are ``[runs, columns]``.
    """
    _require(scores)
    _require(base)
    found = mannwhitneyu(scores, base, axis=0, method="asymptotic").statistic
    return float(np.mean(found) / (len(scores) * len(base)))


def _require(scores: Scores) -> None:
    if scores.ndim != 2 or not scores.size or not np.isfinite(scores).all():
        raise ValueError("scores are numbers [seeds, tasks], at least one")
