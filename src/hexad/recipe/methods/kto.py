"""KTO: single episodes, desirable or not, against a baseline of mismatched answers."""

from hexad.recipe.methods.record import Assumptions, Method

KTO = Method(
    name="kto",
    title="Kahneman-Tversky optimisation",
    equation="loss = mean over episodes of w (1 - sigmoid(beta (s - z))) if desirable, else "
    "w (1 - sigmoid(beta (z - s))),  z = max(0, mean of s over answers to other tasks)",
    source="Ethayarajh et al. 2024, KTO, arXiv 2402.01306; code: ContextualAI/HALOs, TRL",
    atom="batch",
    assumptions=Assumptions(behaviour_logprobs=False, reference=True, tolerates_lag=True),
    needs={"logprob": False, "reward": False},
    axes={
        "feedback": {"source": "preferences"},
        "data": {
            "regime": "iterative",
            "origin": "policy",
            "group_size": 4,
            "rounds": {"tasks": 512},
            "pairs": {"rule": "labels"},
        },
        "action": {"denominator": "episode"},
        "credit": {"estimator": "none"},
        "update": {"surrogate": "kto", "preference": {"beta": 0.1, "reduction": "sum"}},
    },
    functions={
        "loss": "hexad.update.preference:kto",
        "score": "hexad.update.preference:scores",
        "pairs": "hexad.feedback.pairs:labelled",
        "reduce": "hexad.update.reduce",
    },
    notes="Answers are paired with prompts of other tasks once a batch, before any split. Balance "
    "the sides by weight_desirable and weight_undesirable: a desirable to undesirable mass of 1 "
    "to 4 / 3 is recommended. A batch of one task has z = 0.",
)
