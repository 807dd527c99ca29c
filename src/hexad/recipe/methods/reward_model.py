"""A Bradley-Terry reward model, trained on pairs and used as a verifier of other recipes."""

from hexad.recipe.methods.record import Assumptions, Method

REWARD_MODEL = Method(
    name="reward_model",
    title="Bradley-Terry reward model",
    equation="loss = mean over pairs of -log sigmoid(r_w - r_l),  "
    "r = w . h + b at the last action token of the side's last segment",
    source="Bradley and Terry 1952; Stiennon et al. 2020, Learning to Summarize from Human "
    "Feedback, arXiv 2009.01325",
    atom="pair",
    assumptions=Assumptions(behaviour_logprobs=False, tolerates_lag=True),
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
        "update": {"surrogate": "bradley_terry"},
    },
    functions={
        "loss": "hexad.update.preference:bradley_terry",
        "model": "hexad.learner.reward_model:RewardModel",
        "pairs": "hexad.feedback.pairs:make",
        "reduce": "hexad.update.reduce",
    },
    notes="The policy only samples and stays as it is; evaluations are of pairs of held-out tasks: "
    "the share that is ranked right. Use it by feedback: {verifier: reward_model, options: {path: "
    "runs/NAME}}, with qualify: {agreement: ...}. Only differences between attempts at one task "
    "are trained.",
)
