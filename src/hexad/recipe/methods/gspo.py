"""GSPO: the ratio and its clip of a whole response, the geometric mean of its tokens."""

from hexad.recipe.methods.record import Assumptions, Method

GSPO = Method(
    name="gspo",
    title="Group sequence policy optimisation",
    equation="A_i as in GRPO;  s_i = exp((1 / L_i) sum_t log(pi(a_t) / old(a_t)));  J = (1/N) "
    "sum_i min(s_i A_i, clip(s_i, 1 - low, 1 + high) A_i)",
    source="Zheng et al. 2025, Group Sequence Policy Optimization, arXiv 2507.18071",
    atom="group",
    assumptions=Assumptions(min_group_size=2),
    needs={"logprob": True, "reward": True},
    axes={
        "feedback": {"source": "verifier"},
        "data": {"regime": "online", "origin": "policy"},
        "action": {"ratio": "episode", "combine": "mean", "denominator": "episode"},
        "credit": {
            "estimator": "grpo",
            "std": "population",
            "threshold": 1e-06,
            "truncation": "score",
        },
        "update": {"surrogate": "clip", "clip_low": 0.0003, "clip_high": 0.0004},
    },
    functions={
        "credit": "hexad.credit.group_relative:grpo",
        "surrogate": "hexad.update.surrogate:clip",
        "reduce": "hexad.update.reduce",
    },
    notes="The bounds are the paper's and belong to a mean of log-ratios: with PPO's 0.2 "
    "nothing would ever be clipped. For an agent the response is declared: the episode "
    "here, its action tokens only; action.ratio: turn is the other reading.",
)
