"""Small batches, policies and recipes for the learner's tests."""

from dataclasses import dataclass

import numpy as np
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from hexad.contract.digest import digest
from hexad.contract.ending import Ending, EndingKind
from hexad.contract.episode import Episode
from hexad.contract.provenance import Provenance
from hexad.contract.reward import Reward
from hexad.contract.segment import Segment
from hexad.contract.task import Split
from hexad.contract.verdict import Verdict, VerdictStatus
from hexad.learner.assemble import assemble
from hexad.learner.assign import Assigner
from hexad.learner.batch import Scores
from hexad.learner.learner import Learner
from hexad.recipe.axes import Recipe

PARTS = {
    name: f"d-{name}"
    for name in (
        "tokenizer template tools environment verifier sampler engine precision adapter".split()
    )
}


@dataclass
class TinyPolicy:
    """What the learner uses of a policy."""

    model: torch.nn.Module

    def lineage(self):
        raw = [p.detach().float().numpy().tobytes() for p in self.model.parameters()]
        return digest(b"".join(raw))

    def weights(self):
        return self.model.state_dict()

    def require_lineage(self, wanted):
        assert self.lineage() == wanted


def tiny(seed=0, dtype=torch.float64, vocab=32, hidden=16, layers=2, **options):
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=vocab,
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        tie_word_embeddings=True,
        max_position_embeddings=512,
        initializer_range=0.3,
        **options,
    )
    return TinyPolicy(Qwen3ForCausalLM(config).to(dtype))


def segment(ids, action, logprob=None, turn=None, version=0):
    action = np.asarray(action, bool)
    values = np.full(len(ids), np.nan, np.float32)
    values[action] = -1.0 if logprob is None else logprob
    return Segment(
        ids=ids,
        action=action,
        weight=action.astype(np.float32),
        logprob=values,
        version=np.where(action, version, -1),
        turn=np.zeros(len(ids), int) if turn is None else turn,
    )


def episode(name, segments, *, reward=1.0, group="g", ending=EndingKind.TERMINAL, lineage=()):
    """``reward`` None: the verifier failed."""
    status = VerdictStatus.CORRECT if reward and reward > 0 else VerdictStatus.WRONG
    verdict = Verdict(status, reward) if reward is not None else None
    if reward is None:
        verdict = Verdict(VerdictStatus.VERIFIER_ERROR, None)
    return Episode(
        episode_id=name,
        task_id=f"t-{group}",
        group_id=group,
        member=0,
        split=Split.TRAIN,
        environment="toy",
        initial_state="s",
        seed=0,
        segments=tuple(segments),
        ending=Ending.of(ending),
        provenance=Provenance(**PARTS, versions=lineage),
        rewards=() if reward is None else (Reward("task", reward),),
        verdict=verdict,
    )


def random_segment(rng, vocab=32, turns=2, longest=6):
    """Prompt, then turns of action and observation tokens; ends in an observation."""
    ids, action, turn = list(rng.integers(0, vocab, 3)), [False] * 3, [0] * 3
    for number in range(turns):
        for is_action in (True, False):
            count = int(rng.integers(1, longest))
            ids += list(rng.integers(0, vocab, count))
            action += [is_action] * count
            turn += [number] * count
    values = rng.uniform(-3.5, -2.5, sum(action)).astype(np.float32)
    return segment(ids, action, values, turn)


def random_episodes(seed=0, groups=4, size=3, rewards=(1.0, 0.0, 0.0), longest=6):
    rng = np.random.default_rng(seed)
    return [
        episode(
            f"{g}-{k}",
            [random_segment(rng, longest=longest) for _ in range(1 + (k == 1))],
            reward=rewards[k % len(rewards)] if g else 0.0,
            group=f"g{g}",
        )
        for g in range(groups)
        for k in range(size)
    ]


def recipe(**sections):
    base = {
        "action": {"denominator": "episode"},
        "credit": {"estimator": "grpo"},
        "update": {"surrogate": "clip", "clip_low": 0.2, "clip_high": 0.2},
    }
    for name, values in sections.items():
        base[name] = {**base.get(name, {}), **values}
    optimizer = {"lr": 1e-2, "schedule": "constant", **base["update"].pop("optimizer", {})}
    base["update"]["optimizer"] = optimizer
    return Recipe.model_validate(base)


def assign(batch, settings, scores=None):
    """Credit of ``batch`` by the recipe ``settings``."""
    return Assigner(settings)(batch, scores or Scores())


def parameters(learner: Learner):
    return torch.cat([p.detach().reshape(-1) for p in learner.root.parameters()])


def train(episodes, settings, batches=1, change=None):
    """Train a tiny float64 policy; returns the learner and the last report."""
    learner = Learner(tiny(), settings)
    for _ in range(batches):
        batch = assemble(episodes)
        if change is not None:
            batch = change(batch)
        scores = learner.score(batch)
        report = learner.update(batch, scores, assign(batch, settings), 0.0)
    return learner, report
