"""The typed recipe: six axes, and what surrounds them. Every field says what it decides.

Unknown keys are errors. Fields of ``system`` change speed and memory, never the objective.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from hexad.contract.sampling import Sampling

Positive = Annotated[int, Field(gt=0)]
NonNegative = Annotated[int, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]


class Axis(BaseModel):
    """Base of every section: frozen, strict about keys."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


class SplitSpec(Axis):
    """Which tasks of one split are used."""

    count: Positive | None = None
    """Number of tasks; ``null`` draws as many as the budget consumes (train only)."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Environment options that hold for this split only."""


class LimitsSpec(Axis):
    """The trainer's limits on one episode: reaching one truncates it."""

    turns: Positive = 8
    """Assistant turns."""
    turn_tokens: Positive = 64
    """Sampled tokens of one turn."""
    context_tokens: Positive = 512
    """Tokens of the whole context."""
    seconds: float | None = Field(default=None, gt=0)
    """Wall-clock seconds of one episode."""


class TaskSpec(Axis):
    """Where tasks come from."""

    environment: str = "calculator"
    """A built-in name, or ``package.module:object``."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Options of the environment, for all splits."""
    train: SplitSpec = SplitSpec()
    """Tasks to learn from."""
    selection: SplitSpec = SplitSpec(count=200)
    """Tasks for choosing between models and settings."""
    hidden: SplitSpec = SplitSpec(count=400)
    """Tasks for reporting only; every use is counted."""
    gate: SplitSpec = SplitSpec(count=200)
    """Tasks for a deployment decision."""
    limits: LimitsSpec = LimitsSpec()
    """The trainer's limits on one episode."""


class SamplingSpec(Axis):
    """The behaviour distribution."""

    temperature: float = Field(default=1.0, ge=0)
    """Divides the logits; 0 cannot be trained on."""
    top_k: NonNegative = 0
    """Keep the k likeliest tokens; 0 keeps all."""
    top_p: Fraction = 1.0
    """Keep the smallest set with this probability; 1 keeps all."""
    min_p: Fraction = 0.0
    """Drop tokens below this share of the likeliest; 0 keeps all."""
    grammar: str | None = None
    """``tool_calls``: a turn is text, or calls of the task's tools with arguments that fit. Any
    other text is a Lark grammar as llguidance reads it. It cuts first; ``null`` allows all."""

    def build(self) -> Sampling:
        """The contract type, with the grammar as it is named here."""
        return Sampling(self.temperature, self.top_k, self.top_p, self.min_p, self.grammar)


class PolicySpec(Axis):
    """Who acts."""

    model: str = "builtin:tiny"
    """``builtin:tiny``, ``builtin:small``, a Hugging Face folder or id, or a Hexad run folder;
    ``previous`` in a later stage of a staged path."""
    sampling: SamplingSpec = SamplingSpec()
    """How tokens are sampled in training and, by default, in evaluation."""


class OverlongSpec(Axis):
    """DAPO's soft punishment: the reward component ``length``, from 0 falling to -1."""

    limit: Positive
    """Sampled tokens of an episode from which on it is -1."""
    cache: Positive
    """It begins to fall at ``limit - cache`` tokens."""


class FeedbackSpec(Axis):
    """Axis 1: where feedback comes from."""

    source: Literal["demonstrations", "verifier"] = "verifier"
    """``demonstrations``: imitate an expert. ``verifier``: a program judges the episode."""
    verifier: str | None = None
    """The verifier's name or ``package.module:object``; ``null`` takes the environment's own."""
    mapping: str = "binary"
    """The versioned mapping from verdict to reward components, by name or ``module:object``."""
    weights: dict[str, float] = Field(default_factory=dict)
    """Weight of each raw component in the reward; a component not named weighs 1."""
    overlong: OverlongSpec | None = None
    """What length costs; ``null`` for nothing. To leave truncated episodes out of the loss is
    ``credit.truncation: mask``."""
    unscored_limit: Fraction = 0.1
    """Share of unscored episodes in one batch above which the run stops."""


class DynamicSpec(Axis):
    """Dynamic sampling: only groups with correct *and* wrong members are trained on."""

    surplus: Literal["carry", "drop"]
    """What becomes of mixed groups beyond the batch: they open the next one, which makes them one
    version old, or are dropped."""
    rounds: Positive = 10
    """Most rounds of sampling for one batch; each draws as many tasks as the share of mixed groups
    so far makes likely to be enough."""
    at_cap: Literal["train", "stop"] = "train"
    """After the last round: train on the groups that were found, or stop the run. Without a single
    mixed group the run stops in any case."""


class DataSpec(Axis):
    """Axis 2: who produced the data, and how often it is refreshed."""

    regime: Literal["fixed", "online"] = "online"
    """``fixed``: stored or expert episodes. ``online``: sampled by the current policy."""
    origin: str = "policy"
    """``policy``, ``expert`` (the environment's own demonstrations) or a folder of episodes."""
    groups: Positive = 32
    """Tasks in one batch."""
    group_size: Positive = 8
    """Attempts at each task."""
    size: Positive | None = None
    """Fixed data: number of demonstrations; ``null`` uses each once (expert) or all (folder)."""
    dynamic: DynamicSpec | None = None
    """Replace groups without a contrast by further ones; ``null`` trains on what was drawn."""
    retries: NonNegative = 2
    """Further attempts at an episode that faulted."""
    fault_limit: Fraction = 0.2
    """Share of faulted episodes in one batch above which the run stops."""


class ActionSpec(Axis):
    """Axis 3: what an action is to ratio and loss."""

    ratio: Literal["token", "turn", "episode"] = "token"
    """The unit of the probability ratio and its clip."""
    combine: Literal["sum", "mean"] | None = None
    """Ratio ``turn`` or ``episode``: the log-ratio of a unit is the sum or the mean of its tokens'
    (the mean is the geometric mean of ratios, a different estimator)."""
    denominator: Literal["token", "response", "segment", "episode", "prompt", "fixed"] = "episode"
    """What the loss averages over."""
    inner: Literal["token", "episode"] | None = None
    """Denominator ``prompt``: how items inside a prompt are averaged."""
    length: Positive | None = None
    """Denominator ``fixed``: the declared number of tokens that one episode is divided by."""


class TrackerSpec(Axis):
    """A Beta tracker of each task's success, which forgets as the policy moves (SPO)."""

    low: float = Field(ge=0, lt=1)
    """Smallest share of the old counts that is kept; reimplementations say .875 or .5."""
    high: float = Field(ge=0, le=1)
    """Largest share; both say .96."""
    half_life: float = Field(gt=0)
    """Change of a task's mean log-prob that halves the counts; both say .06."""
    initial: Fraction = 0.5
    """Value of a task that was never seen."""


class CreditSpec(Axis):
    """Axis 4: how reward reaches actions."""

    estimator: str = "grpo"
    """The advantage estimator: none, reinforce, rloo, grpo, dr_grpo, reinforce_pp, gigpo, gae,
    vtrace, or ``package.module:object`` of user code."""
    baseline: Literal["none", "batch", "prompt_mean", "beta", "greedy"] | None = None
    """Estimator ``reinforce``: what is subtracted from the return. ``prompt_mean``: mean of the
    task's last scores; ``beta``: a discounted Beta tracker of the task's success;
    ``greedy``: the score of a greedy rollout (ReMax), an auxiliary one a task."""
    window: Positive | None = None
    """Baseline ``prompt_mean``: how many scores of a task are remembered."""
    tracker: TrackerSpec | None = None
    """Baseline ``beta``: how fast it forgets."""
    std: Literal["population", "sample"] | None = None
    """Estimators ``grpo`` and ``gigpo``: which standard deviation divides; ``null`` in ``gigpo``
    divides by none."""
    threshold: float | None = Field(default=None, ge=0)
    """With ``std``: at or below this standard deviation the advantage is exactly 0."""
    omega: float | None = Field(default=None, ge=0)
    """Estimator ``gigpo``: weight of the state groups beside the episode groups."""
    clock: Literal["token", "span", "turn", "segment"] = "token"
    """The time step of the estimator: what discounts and traces count."""
    gamma: float = Field(default=1.0, ge=0, le=1)
    """Discount a clock step; Monte Carlo estimators of one number an episode need 1."""
    lambda_policy: float | None = Field(default=None, ge=0, le=1)
    """Estimators ``gae`` and ``vtrace``: trace of the advantage, unless ``alpha`` sets it."""
    lambda_critic: float | None = Field(default=None, ge=0, le=1)
    """Estimator ``gae``: trace of the critic's target."""
    alpha: float | None = Field(default=None, gt=0)
    """Estimator ``gae``: trace 1 - 1 / (alpha l) in [0, 1], of an episode of l clock steps."""
    rho_bar: float | None = Field(default=None, gt=0)
    """Estimator ``vtrace``: cap of the ratio in the temporal difference; sets the fixed point."""
    c_bar: float | None = Field(default=None, gt=0)
    """Estimator ``vtrace``: cap of the ratio in the trace; sets speed and variance only."""
    shaping: str | None = None
    """Estimators on the clock: ``package.module:object`` of a potential, a function of a batch that
    gives Phi [T] of the prefix ending with each token; gamma Phi(s') - Phi(s) joins the rewards."""
    whiten: Literal["batch", "group"] | None = None
    """Subtract the mean of the advantages of action tokens and divide by their deviation, over the
    batch or each group."""
    truncation: Literal["score", "mask"] | None = None
    """Monte Carlo estimators: a truncated episode keeps its score, or is left out of the loss.
    Estimators with a critic bootstrap from the value where it was cut."""


class TimingSpec(Axis):
    """Axis 6: when experience is consumed."""

    mode: Literal["synchronous", "asynchronous"] = "synchronous"
    """``synchronous``: sample a batch, train on it, publish, repeat. ``asynchronous``: sampling and
    training overlap."""
    max_lag: NonNegative | None = None
    """Mode ``asynchronous``: most versions that a token may be older than the learner."""


class OptimizerSpec(Axis):
    """AdamW and its schedule."""

    lr: float = Field(default=4e-4, gt=0)
    """Peak learning rate."""
    betas: tuple[float, float] = (0.9, 0.95)
    """Decay rates of the moment estimates."""
    eps: float = Field(default=1e-8, gt=0)
    """Added to the denominator of the step."""
    weight_decay: float = Field(default=0.0, ge=0)
    """Decoupled weight decay, on matrices only."""
    clip_norm: float | None = Field(default=0.5, gt=0)
    """Largest global gradient norm."""
    warmup_steps: NonNegative = 0
    """Optimiser steps of linear warm-up."""
    schedule: Literal["constant", "linear", "cosine"] = "linear"
    """Decay of the learning rate over the used share of the budget."""
    floor: Fraction = 0.1
    """Share of the peak that the schedule ends at."""


class CorrectionSpec(Axis):
    """A weight against a mismatch of two policies, detached, on the policy term alone."""

    ratio: Literal["engine", "proximal"] = "engine"
    """``engine``: sampled / behaviour, one version in two engines. ``proximal``: old / behaviour,
    which is stale data too."""
    rule: Literal["tis", "icepop", "mis", "sequence_tis", "geometric", "k3", "opsm"]
    """``tis`` caps the weight; ``icepop`` and ``mis`` drop tokens; ``sequence_tis`` caps the
    episode's product; ``geometric``, ``k3`` and ``opsm`` drop episodes."""
    low: float | None = Field(default=None, gt=0)
    """``icepop`` and ``geometric``: smallest ratio that is kept."""
    high: float = Field(gt=0)
    """The cap, or the largest ratio (``k3`` and ``opsm``: mean divergence) that is kept."""


class EssSpec(Axis):
    """A learning rate that follows the effective sample size of each step (VCPO)."""

    base: float = Field(gt=0, le=1)
    """Effective share of the episodes at which the rate is whole: 1, or .55 over several turns."""
    rule: Literal["sqrt", "linear"] = "sqrt"
    """The factor is the root of share / base, or share / base itself; never above 1."""


class KLSpec(Axis):
    """A penalty for leaving the reference, the policy that the run starts with."""

    estimator: Literal["k1", "k2", "k3", "k3_straight"]
    """How the divergence of one token is estimated; ``k3_straight`` has k3's value, k2's
    gradient."""
    placement: Literal["reward", "loss"]
    """``reward``: subtracted from the reward of the token. ``loss``: added to its loss."""
    coefficient: float = Field(gt=0)
    """Weight of the penalty; where it starts, if it adapts."""
    weighted: Literal["none", "graph", "detached"] = "none"
    """Placement ``loss``: multiply by current / behaviour, in the graph or detached."""
    target: float | None = Field(default=None, gt=0)
    """The coefficient adapts so that the mean divergence comes here; ``null`` keeps it."""
    horizon: Positive | None = None
    """With ``target``: episodes over which the coefficient moves by the whole relative error."""


class UpdateSpec(Axis):
    """How far the policy may move."""

    surrogate: str = "clip"
    """``nll``: imitation. ``plain``: ratio times advantage. ``clip``: PPO's pessimistic bound.
    ``cispo``: detached clipped ratio times log-prob. ``sapo``: soft gate. ``dis``: two-sided gate
    on current / behaviour. ``squared``: Kimi k1.5. ``token_clip``: Kimi K2.5. ``difference``: gate
    on the difference of probabilities. ``package.module:object``: user code."""
    clip_low: float | None = Field(default=None, gt=0)
    """Ratios below 1 - clip_low are clipped or gated (``token_clip``: log-ratios below
    -clip_low; ``difference``: probabilities lower by clip_low)."""
    clip_high: float | None = Field(default=None, gt=0)
    """Ratios above 1 + clip_high are clipped or gated; as ``clip_low``."""
    dual: float | None = Field(default=None, gt=1)
    """Surrogate ``clip``: with a negative advantage the objective is at least dual times it."""
    tau: float | None = Field(default=None, gt=0)
    """``squared`` and ``token_clip``: weight of the squared log-ratio; ``sapo``: temperature of
    positive advantages."""
    tau_negative: float | None = Field(default=None, gt=0)
    """Surrogate ``sapo``: temperature of negative advantages."""
    epochs: Positive = 1
    """Passes over a batch."""
    minibatches: Positive = 1
    """Optimiser steps a pass."""
    target_kl: float | None = Field(default=None, gt=0)
    """Stop the batch's remaining steps once the mean KL(old, current) estimate exceeds this."""
    correction: CorrectionSpec | None = None
    """A weight against engine mismatch or stale data."""
    kl: KLSpec | None = None
    """A penalty for leaving the reference policy."""
    ess: EssSpec | None = None
    """Scale the learning rate of each step by its effective sample size."""
    entropy: float | None = Field(default=None, gt=0)
    """Weight of the policy's entropy, over the set it samples from, in the objective."""
    positive_nll: float | None = Field(default=None, gt=0)
    """Weight of the token-mean negative log-likelihood of correct episodes (VAPO)."""
    optimizer: OptimizerSpec = OptimizerSpec()
    """The optimiser."""


class CriticSpec(Axis):
    """Axis 5: a learned value function, and what it pays for being wrong."""

    trunk: Literal["own", "shared"] = "own"
    """``own``: a copy of the initial policy. ``shared``: a head on the policy's hidden states."""
    head: Literal["regression", "hl_gauss"] = "regression"
    """``regression``: half the squared error. ``hl_gauss``: cross-entropy of a histogram."""
    support: tuple[float, float] | None = None
    """Head ``hl_gauss``: smallest and largest return that a target can be."""
    bins: Positive = 51
    """Head ``hl_gauss``: bins of the histogram."""
    sigma: float = Field(default=0.75, gt=0)
    """Head ``hl_gauss``: width of the target's Gaussian, in bins."""
    clip: float | None = Field(default=None, gt=0)
    """Head ``regression``: values that moved further than this get no further gradient."""
    updates: Positive = 1
    """Trunk ``own``: passes over each batch, for one policy update."""
    minibatches: Positive = 1
    """Trunk ``own``: optimiser steps a pass."""
    denominator: Literal["token", "episode"] = "token"
    """What the value loss averages over: clock steps, or episodes."""
    pretrain: NonNegative = 0
    """First batches on which only the critic learns, from Monte Carlo returns."""
    rescore: bool = False
    """Take advantages from the values *after* the critic's update on the batch."""
    freeze: Literal["nothing", "attention"] = "nothing"
    """Trunk ``own``: parameters that are left as the policy had them."""
    coefficient: float = Field(default=0.5, gt=0)
    """Trunk ``shared``: weight of the value loss beside the policy's."""
    optimizer: OptimizerSpec = OptimizerSpec(lr=1e-3, schedule="constant")
    """Trunk ``own``: the critic's optimiser."""


class BudgetSpec(Axis):
    """What the run may consume; the first budget that is used up ends it."""

    episodes: Positive | None = None
    """Environment episodes (or demonstrations) consumed."""
    rollout_tokens: Positive | None = None
    """Sampled tokens, those of refused and faulted episodes included."""
    train_tokens: Positive | None = None
    """Action tokens through a backward pass."""
    tool_calls: Positive | None = None
    """Tool calls."""
    seconds: float | None = Field(default=None, gt=0)
    """Wall-clock seconds of training, evaluation apart."""


class TargetSpec(Axis):
    """Stop early, once closed-loop success on ``selection`` reaches ``success``."""

    success: Fraction
    """The success rate that ends the run."""


class EvaluationSpec(Axis):
    """When closed-loop success is measured. Model selection only ever sees ``selection``."""

    every: Positive | None = 10
    """Batches between evaluations on ``selection``; ``null`` for none."""
    tasks: Positive = 200
    """Tasks of each of them."""
    final: Literal["hidden", "selection", "none"] = "hidden"
    """The split that is evaluated once, at the start and at the end of the run."""
    until: TargetSpec | None = None
    """Ends the run early."""


class CheckpointSpec(Axis):
    """When the run can be resumed from."""

    every: Positive | None = 20
    """Batches between checkpoints; one is always written at the end."""
    keep: Positive = 2
    """Whole checkpoints kept."""


class RunSpec(Axis):
    """Seed, evaluation, checkpoints."""

    seed: NonNegative = 0
    """Seeds initialisation and sampling; ``task.options.seed`` orders the training tasks."""
    evaluation: EvaluationSpec = EvaluationSpec()
    """When success is measured."""
    checkpoints: CheckpointSpec = CheckpointSpec()
    """When the run can be resumed from."""


class SystemSpec(Axis):
    """Speed and memory, never the objective."""

    dtype: Literal["float32", "bfloat16", "float64"] = "float32"
    """Type of the weights and of the forward pass."""
    device: str = "cpu"
    """``cpu``, ``cuda`` or ``cuda:N``."""
    micro_batch_tokens: Positive = 16384
    """Padded tokens of one forward pass."""
    engine: Literal["local"] = "local"
    """Who samples."""
    engine_rows: Positive = 256
    """Requests decoded at once."""
    tool_workers: Positive = 4
    """Threads that execute tools."""
    threads: Positive | None = None
    """Threads of torch; ``null`` leaves torch's own choice."""


class Recipe(Axis):
    """A whole, resolved recipe: what ``recipe.yaml`` in a run folder holds."""

    name: str = "run"
    """Name of the run; its folder is ``runs/NAME`` unless ``--run`` says otherwise."""
    method: str = "grpo"
    """The preset that filled the axes; whatever is written out wins."""
    task: TaskSpec = TaskSpec()
    policy: PolicySpec = PolicySpec()
    feedback: FeedbackSpec = FeedbackSpec()
    data: DataSpec = DataSpec()
    action: ActionSpec = ActionSpec()
    credit: CreditSpec = CreditSpec()
    critic: CriticSpec | None = None
    """Axis 5: a learned value function; ``null`` for none."""
    timing: TimingSpec = TimingSpec()
    update: UpdateSpec = UpdateSpec()
    budget: BudgetSpec = BudgetSpec()
    run: RunSpec = RunSpec()
    system: SystemSpec = SystemSpec()
