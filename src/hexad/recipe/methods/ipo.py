"""IPO: a squared distance to a finite margin, so that pairs are not driven apart for ever."""

from hexad.recipe.methods.record import Assumptions, Method

IPO = Method(
    name="ipo",
    title="Identity preference optimisation",
    equation="loss = mean over pairs of (s_w - s_l - 1 / (2 beta))^2,  "
    "s = mean_t log pi(a_t | h_t) - log pi_ref(a_t | h_t) over the side's action tokens",
    source="Azar et al. 2023, A General Theoretical Paradigm to Understand Learning from Human "
    "Preferences, arXiv 2310.12036",
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
        "update": {"surrogate": "ipo", "preference": {"beta": 0.1, "reduction": "mean"}},
    },
    functions={
        "loss": "hexad.update.preference:ipo",
        "score": "hexad.update.preference:scores",
        "pairs": "hexad.feedback.pairs:make",
        "reduce": "hexad.update.reduce",
    },
    notes="The mean is what the authors confirmed (TRL); the sum of tokens is another loss. Equal "
    "sides have a constant loss and no gradient: they make no pair.",
)
