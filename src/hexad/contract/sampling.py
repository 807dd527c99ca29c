"""The behaviour distribution: the exact transform between logits and the sampled token."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from hexad.contract.digest import digest


@dataclass(frozen=True, slots=True)
class Sampling:
    """Transforms in the order in which they apply; log-probs are recorded after all of them.

    ``grammar`` -> ``temperature`` -> ``top_k`` -> ``top_p`` -> ``min_p`` -> renormalise. The
    defaults are inert: the model's own distribution at temperature 1.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    grammar: str | None = None

    @property
    def full_support(self) -> bool:
        """Whether every token of the vocabulary can be sampled."""
        inert = self.top_k == 0 and self.top_p >= 1.0 and self.min_p <= 0.0
        return inert and self.grammar is None

    def digest(self) -> str:
        """Digest of the transform; it enters the sampler digest of the provenance."""
        return digest(asdict(self))
