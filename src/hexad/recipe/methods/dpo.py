"""DPO: the reference's ratio as an implicit reward, compared within a pair."""

from hexad.recipe.methods.record import Assumptions, Method

DPO = Method(
    name="dpo",
    title="Direct preference optimisation",
    equation="loss = mean over pairs of -log sigmoid(beta (s_w - s_l)),  "
    "s = sum_t log pi(a_t | h_t) - log pi_ref(a_t | h_t) over the side's action tokens",
    source="Rafailov et al. 2023, Direct Preference Optimization, arXiv 2305.18290",
    atom="pair",
    assumptions=Assumptions(behaviour_logprobs=False, reference=True, tolerates_lag=True),
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
        "update": {"surrogate": "dpo", "preference": {"beta": 0.1, "reduction": "sum"}},
    },
    functions={
        "loss": "hexad.update.preference:dpo",
        "score": "hexad.update.preference:scores",
        "pairs": "hexad.feedback.pairs:make",
        "reduce": "hexad.update.reduce",
    },
    notes="reduction: mean is length-normalised DPO, smoothing is cDPO, excess is LD-DPO, decay is "
    "DMPO. Watch preference/displacement: the chosen side may lose likelihood while the "
    "margin grows.",
)
