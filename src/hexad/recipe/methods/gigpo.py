"""GiGPO: an episode group and, inside it, groups of steps that met the same state."""

from hexad.recipe.methods.record import Assumptions, Method

GIGPO = Method(
    name="gigpo",
    title="Group-in-group policy optimisation",
    equation="A = A_E + omega A_S;  A_E = R_i - mean R in the group;  A_S = G_t - mean of G over"
    " the steps of the group in the same state,  G_t discounted return of the turn",
    source="Feng et al. 2025, GiGPO, arXiv 2505.10978",
    atom="group",
    assumptions=Assumptions(min_group_size=2),
    needs={"logprob": True, "reward": True},
    axes={
        "feedback": {"source": "verifier"},
        "data": {"regime": "online", "origin": "policy"},
        "action": {"denominator": "episode"},
        "credit": {
            "estimator": "gigpo",
            "clock": "turn",
            "gamma": 0.95,
            "omega": 1.0,
            "truncation": "score",
        },
        "update": {"surrogate": "clip", "clip_low": 0.2, "clip_high": 0.2},
    },
    functions={
        "credit": "hexad.credit.step_groups:gigpo",
        "surrogate": "hexad.update.surrogate:clip",
        "reduce": "hexad.update.reduce",
    },
    notes="Needs an environment with a state_digest: the state a turn begins in. The digest "
    "must hold all history that matters, or unlike states are compared. The task is "
    "part of the group. A state met once has no group. credit.std and threshold divide "
    "by a deviation, the paper's other normaliser.",
)
