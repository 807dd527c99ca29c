"""A source over scripted workers, the little of the loop that it needs, and fates of episodes."""

import random
from dataclasses import replace

from scripted_workers import scripted_episode

import builders
from hexad.contract.admission import Needs
from hexad.recipe.axes import DataSpec, Recipe, RunSpec, SplitSpec, TaskSpec
from hexad.recipe.timing_axis import TimingSpec, WorkersSpec
from hexad.schedule.asynchronous import AsynchronousSource, Supply
from hexad.schedule.messages import Play, read
from toyworld import chatter, toy_world


def recipe(groups=2, size=1, count=None, max_lag=1, workers=1, restarts=3, **timing):
    spec = WorkersSpec(count=workers, restarts=restarts)
    return Recipe(
        task=TaskSpec(train=SplitSpec(count=count)),
        data=DataSpec(groups=groups, group_size=size, fault_limit=timing.pop("fault_limit", 0.2)),
        timing=TimingSpec(mode="asynchronous", max_lag=max_lag, workers=spec, **timing),
        run=RunSpec(seed=7),
    )


class Bench:
    """A source, its workers, and the little of the loop that they need.

    Scripted workers have no use for ``world`` and ``weights``; real ones are given both.
    """

    def __init__(self, plan, backend, wal, version=0, world=None, weights=dict):
        self.plan, self.backend, self.events = plan, backend, []
        self.lineage, self.asked = {}, False
        world = replace(world or toy_world(chatter), lineage=lambda v: self.lineage[v])
        supply = Supply(backend, weights, self.needs, wal, lambda: self.asked)
        self.source = AsynchronousSource(
            world, plan, supply, lambda event: self.events.append(event)
        )
        self.version = version

    def needs(self, version):
        return Needs(
            max_lag=self.plan.timing.max_lag, learner_version=version, lineage=self.lineage
        )

    def publish(self):
        self.lineage[self.version] = f"digest-{self.version}"
        self.source.publish(None, self.version, self.lineage[self.version])

    def batch(self):
        if not self.events:
            self.publish()
        harvest = self.source.next(self.version)
        if not harvest.interrupted:
            self.version += 1
            self.publish()
        return harvest

    def of(self, kind):
        return [event for event in self.events if isinstance(event, kind)]


def orders(backend):
    return [m for _, frame in backend.sent if isinstance(m := read(frame), Play)]


def faulty(every):
    def answer(play, versions, rng):
        episode = scripted_episode(play, versions, rng)
        if play.index % every == 0:
            return replace(
                episode,
                ending=builders.Ending.of(builders.EndingKind.ENVIRONMENT_ERROR, "broken"),
                rewards=(),
                verdict=None,
            )
        return episode

    return answer


def any_fate(play, versions, rng):
    """Every fate of an episode: too old, faulted, unscored, orphaned, or fine."""
    made = scripted_episode(play, versions, rng)
    fate = random.Random(play.episode_id).random()
    if fate < 0.08:
        return faulty(1)(play, versions, rng)
    if fate < 0.16:
        return replace(made, verdict=None, rewards=())
    if fate < 0.22:
        return replace(made, provenance=builders.provenance(versions=((0, "gone"),)))
    if fate < 0.4:
        return scripted_episode(play, {min(versions): versions[min(versions)]}, rng)
    return made
