"""Which exact parts produced an episode."""

from __future__ import annotations

from dataclasses import dataclass, fields

PARTS = (
    "tokenizer",
    "template",
    "tools",
    "environment",
    "verifier",
    "sampler",
    "engine",
    "precision",
    "adapter",
)
"""Names of the digest fields, in the order of :class:`Provenance`."""

AGREE_IN_BATCH = ("tokenizer", "template", "sampler")
"""Parts that must be equal in every episode of a batch; the rest must agree per environment."""


@dataclass(frozen=True, slots=True)
class Provenance:
    """Digests of every part, and the lineage digest of every policy version that sampled.

    ``versions`` maps a policy version to the digest of the weights lineage it stood for, as sorted
    ``(version, digest)`` pairs; it is empty when nobody sampled (expert data). A part that does not
    exist is the word ``none``; an empty digest and the word ``latest`` are violations.
    """

    tokenizer: str
    template: str
    tools: str
    environment: str
    verifier: str
    sampler: str
    engine: str
    precision: str
    adapter: str = "none"
    versions: tuple[tuple[int, str], ...] = ()

    def parts(self) -> dict[str, str]:
        """The digests by part name."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name in PARTS}

    def lineage(self) -> dict[int, str]:
        """Policy version -> lineage digest."""
        return dict(self.versions)
