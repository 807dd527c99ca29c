"""SimPO: mean log-probs against a margin, without a reference."""

from hexad.recipe.methods.record import Assumptions, Method

SIMPO = Method(
    name="simpo",
    title="Simple preference optimisation",
    equation="loss = mean over pairs of -log sigmoid(beta (m_w - m_l) - gamma),  "
    "m = mean_t log pi(a_t | h_t) over the side's action tokens",
    source="Meng et al. 2024, SimPO, arXiv 2405.14734",
    atom="pair",
    assumptions=Assumptions(behaviour_logprobs=False, reference=False, tolerates_lag=True),
    needs={"logprob": False, "reward": False},
    axes={
        "feedback": {"source": "preferences"},
        "data": {
            "regime": "iterative",
            "origin": "policy",
            "group_size": 4,
            "rounds": {"tasks": 512},
            "pairs": {"rule": "reward_gap", "gap": 0.5},
        },
        "action": {"denominator": "pair"},
        "credit": {"estimator": "none"},
        "update": {
            "surrogate": "simpo",
            "preference": {"beta": 2.5, "reduction": "mean", "gamma": 1.375},
        },
    },
    functions={
        "loss": "hexad.update.preference:simpo",
        "score": "hexad.update.preference:scores",
        "pairs": "hexad.feedback.pairs:make",
        "reduce": "hexad.update.reduce",
    },
    notes="Nothing holds the policy near its start: use a small learning rate. beta and gamma are "
    "TRL's; the paper uses beta 2 to 10 and gamma / beta about .5.",
)
