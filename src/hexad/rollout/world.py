"""Everything that an episode meets: policy, environment, feedback and limits."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property

from hexad.contract.digest import digest
from hexad.contract.provenance import Provenance
from hexad.contract.sampling import Sampling
from hexad.environments.permission import Guard
from hexad.environments.protocol import TaskFamily
from hexad.feedback.judge import Feedback
from hexad.feedback.prices import Prices
from hexad.policy.chat import Chat
from hexad.policy.engine import Engine
from hexad.recipe.axes import LimitsSpec


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds that an environment may take; later it hangs, which is an ``EnvironmentFault``."""

    reset: float = 60.0
    step: float = 60.0
    close: float = 5.0


@dataclass(frozen=True, slots=True)
class PolicyIdentity:
    """Digests of the policy's parts that do not change in a run (see ``Provenance``)."""

    tokenizer: str
    template: str
    precision: str
    adapter: str = "none"


@dataclass(frozen=True)
class World:
    """What an episode needs. ``dataclasses.replace`` makes the world of an evaluation.

    ``lineage`` maps a policy version to the digest of its weights' lineage. ``retries`` is the
    number of further attempts at an episode that faulted. ``trained`` says whether episodes may be
    trained on. Without ``feedback`` episodes have no
    verdict. ``guard`` reviews every turn before the environment sees it, and ``prices`` say what an
    episode costs. ``clock`` returns seconds and only grows.
    """

    engine: Engine
    chat: Chat
    family: TaskFamily
    policy: PolicyIdentity
    stop_ids: tuple[int, ...]
    lineage: Callable[[int], str]
    feedback: Feedback | None = None
    sampling: Sampling = field(default_factory=Sampling)
    limits: LimitsSpec = field(default_factory=LimitsSpec)
    retries: int = 2
    trained: bool = True
    patience: Patience = field(default_factory=Patience)
    clock: Callable[[], float] = time.monotonic
    guard: Guard | None = None
    prices: Prices | None = None

    def greedy(self) -> World:
        """The world of auxiliary rollouts: the likeliest token, always, and never trained on."""
        return replace(self, sampling=replace(self.sampling, top_k=1), trained=False)

    def provenance(self, versions: Iterable[int]) -> Provenance:
        """Provenance of an episode that the policy ``versions`` sampled."""
        pairs = tuple((version, self.lineage(version)) for version in sorted(set(versions)))
        return replace(self._sampled, versions=pairs)

    @cached_property
    def demonstrated(self) -> Provenance:
        """Provenance of an expert's episode: nobody sampled."""
        return replace(self._sampled, sampler="none", engine="none", precision="none")

    @property
    def environment_digest(self) -> str:
        """Digest of the family, and of what is kept from it."""
        if self.guard is None:
            return self.family.digest
        return digest([self.family.digest, self.guard.digest])

    @cached_property
    def _sampled(self) -> Provenance:
        return Provenance(
            tokenizer=self.policy.tokenizer,
            template=self.policy.template,
            tools=digest([asdict(tool) for tool in self.family.tools]),
            environment=self.environment_digest,
            verifier="none" if self.feedback is None else self.feedback.digest,
            sampler=self.sampling.digest(),
            engine=self.engine.digest,
            precision=self.policy.precision,
            adapter=self.policy.adapter,
        )
