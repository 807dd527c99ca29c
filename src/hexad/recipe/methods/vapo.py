"""VAPO: PPO with a pretrained critic, length-adaptive GAE and an NLL of successes."""

from hexad.recipe.methods.record import Assumptions, Method

VAPO = Method(
    name="vapo",
    title="Value-augmented proximal policy optimisation",
    equation="lambda_policy = 1 - 1 / (alpha l), lambda_critic = 1;  J = token mean of min(r_t "
    "A_t, clip(r_t, 1 - low, 1 + high) A_t) - mu NLL(correct episodes)",
    source="Yue et al. 2025, VAPO, arXiv 2504.05118",
    atom="row",
    assumptions=Assumptions(critic=True),
    needs={"logprob": True, "reward": True},
    axes={
        "feedback": {"source": "verifier"},
        "data": {"regime": "online", "origin": "policy"},
        "action": {"denominator": "token"},
        "critic": {"updates": 1, "pretrain": 5},
        "credit": {"estimator": "gae", "alpha": 0.05, "lambda_critic": 1.0},
        "update": {"surrogate": "clip", "clip_low": 0.2, "clip_high": 0.28, "positive_nll": 0.1},
    },
    functions={
        "credit": "hexad.credit.gae:gae",
        "surrogate": "hexad.update.surrogate:clip",
        "nll": "hexad.update.surrogate:nll",
        "reduce": "hexad.update.reduce",
    },
    notes="alpha .05 is the paper's, for thousands of tokens: lambda is 0 below 20 steps, so "
    "episodes of 40 tokens get .5; SAO's alpha is 1.5. The paper pretrains the critic "
    "for 50 steps (secondary source); critic.pretrain counts batches. Group sampling is"
    " data.group_size; it does not make this GRPO.",
)
