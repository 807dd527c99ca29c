"""RLOO: REINFORCE with a leave-one-out baseline inside each group."""

from hexad.recipe.methods.record import Assumptions, Method

RLOO = Method(
    name="rloo",
    title="REINFORCE leave-one-out",
    equation="A_i = R_i - mean of R_j over j != i in the group;  "
    "J = (1/N) sum_i A_i sum_t pi(a_t) / old(a_t)",
    source="Ahmadian et al. 2024, Back to Basics, arXiv 2402.14740",
    atom="group",
    assumptions=Assumptions(min_group_size=2),
    needs={"logprob": True, "reward": True},
    axes={
        "feedback": {"source": "verifier"},
        "data": {"regime": "online", "origin": "policy"},
        "action": {"denominator": "fixed", "length": 1},
        "credit": {"estimator": "rloo", "truncation": "score"},
        "update": {"surrogate": "plain"},
    },
    functions={
        "credit": "hexad.credit.group_relative:rloo",
        "surrogate": "hexad.update.surrogate:plain",
        "reduce": "hexad.update.reduce",
    },
    notes="The paper's action is the whole sequence: the sum of its token log-probs, averaged over "
    "sequences. Denominator fixed with length 1 is exactly that; any other length is the same "
    "direction on another scale, which matters only to clip_norm. Denominator episode would be a "
    "different objective (it divides by each episode's own length). No clipping, and no KL in the "
    "reward (the paper's beta is 0.03 to 0.10).",
)
