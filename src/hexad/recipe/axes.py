"""The typed recipe: six axes, and what surrounds them. Every field says what it decides.

Unknown keys are errors. Fields of ``system`` change speed and memory, never the objective.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from hexad.contract.sampling import Sampling
from hexad.recipe.axis import Axis, Fraction, NonNegative, Positive
from hexad.recipe.credit_axis import CreditSpec
from hexad.recipe.data_set_axis import DataSetSpec
from hexad.recipe.preference_axis import PairsSpec, RoundsSpec
from hexad.recipe.process_axis import (
    ConstraintSpec,
    CostSpec,
    EffortSpec,
    HardGateSpec,
    LengthSpec,
    ProcessSpec,
)
from hexad.recipe.task_axis import ChaosSpec, GuardSpec, LatencySpec
from hexad.recipe.timing_axis import TimingSpec
from hexad.recipe.update_axis import CriticSpec, UpdateSpec


class SplitSpec(Axis):
    """Which tasks of one split are used."""

    count: Positive | None = None
    """Number of tasks; ``null`` draws as many as the budget consumes (train only)."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Environment options that hold for this split only."""


class LimitsSpec(Axis):
    """The trainer's limits on one episode: reaching one truncates it.

    ``reset_seconds`` and ``step_seconds`` limit the environment: beyond them it is at fault.
    """

    turns: Positive = 8
    """Assistant turns."""
    turn_tokens: Positive = 64
    """Sampled tokens of one turn."""
    context_tokens: Positive = 512
    """Tokens of the whole context."""
    seconds: float | None = Field(default=None, gt=0)
    """Wall-clock seconds of one episode."""
    reset_seconds: float = Field(default=60.0, gt=0)
    """Seconds that a reset may take; later it hangs, which is an environment fault."""
    step_seconds: float = Field(default=60.0, gt=0)
    """Seconds that a step may take; later it hangs, which is an environment fault."""


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
    guard: GuardSpec | None = None
    """What the policy may not call; ``null`` lets everything through. Evaluations keep it."""
    latency: LatencySpec | None = None
    """Make calls of the environment wait; ``null`` leaves them as fast as they are."""
    chaos: ChaosSpec | None = None
    """Make environment and verifier fail; ``null`` leaves them as they are."""


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


class AdapterSpec(Axis):
    """A LoRA adapter (Hu et al., arXiv:2106.09685), through peft: W + alpha / rank B A.

    Without dropout: it would put the learner's policy beside the one that sampled.
    """

    rank: Positive = 16
    """Rows of A and columns of B."""
    alpha: Positive = 32
    """Scale: what B A adds is multiplied by ``alpha / rank``."""
    targets: Literal["all-linear"] | tuple[str, ...] = "all-linear"
    """Names of the linear maps that get one; ``all-linear`` leaves out the output embeddings."""


class PolicySpec(Axis):
    """Who acts."""

    model: str = "builtin:tiny"
    """``builtin:tiny``, ``builtin:small``, a Hugging Face folder or id, or a Hexad run folder;
    ``previous`` in a later stage of a staged path. A folder may hold a LoRA adapter."""
    adapter: AdapterSpec | None = None
    """Train a LoRA adapter alone: that of ``model``, or a fresh one on it. ``null`` trains all
    weights; an adapter that ``model`` holds is merged into them first."""
    sampling: SamplingSpec = SamplingSpec()
    """How tokens are sampled in training and, by default, in evaluation."""


class OverlongSpec(Axis):
    """DAPO's soft punishment: the reward component ``length``, from 0 falling to -1."""

    limit: Positive
    """Sampled tokens of an episode from which on it is -1."""
    cache: Positive
    """It begins to fall at ``limit - cache`` tokens."""


class QualifySpec(Axis):
    """What a verifier must have shown in ``hexad check``."""

    agreement: Fraction
    """Least share of judged cases on which it agrees with the evaluation's verifier. Measured and
    below it, training is refused; not measured, the summary says so."""


class FeedbackSpec(Axis):
    """Axis 1: where feedback comes from."""

    source: Literal["demonstrations", "preferences", "verifier"] = "verifier"
    """``demonstrations``: imitate an expert. ``preferences``: which of two episodes is better.
    ``verifier``: a program judges the episode."""
    verifier: str | None = None
    """The verifier's name or ``package.module:object``; ``null`` takes the environment's own."""
    options: dict[str, Any] = Field(default_factory=dict)
    """What the verifier is made with, a tolerance for example."""
    timeout: Literal["wrong", "unscored"] = "wrong"
    """What an answer counts as that takes longer to check than the verifier's limit. ``unscored``
    is for a verifier that may itself be slow; else hanging it would be an escape."""
    mapping: str = "binary"
    """The versioned mapping from verdict to reward components, by name or ``module:object``."""
    weights: dict[str, float] = Field(default_factory=dict)
    """Weight of each raw component in the reward; a component not named weighs 1."""
    overlong: OverlongSpec | None = None
    """What length costs; ``null`` for nothing. To leave truncated episodes out of the loss is
    ``credit.truncation: mask``."""
    process: dict[str, ProcessSpec] = Field(default_factory=dict)
    """Process signals by the name of their component: what a state is worth on the way."""
    costs: CostSpec | None = None
    """Prices of turns and tool calls; ``null`` charges nothing."""
    length: LengthSpec | None = None
    """A reward for being shorter than the group's others; ``null`` for none."""
    effort: EffortSpec | None = None
    """The effort beyond which an episode's reward is replaced; ``null`` for none."""
    gate: HardGateSpec | None = None
    """The reward of an episode with a violation of ``task.guard``; ``null``: a refused call has no
    further consequence."""
    constraints: dict[str, ConstraintSpec] = Field(default_factory=dict)
    """Limits on means, by name, each held by a multiplier: what is traded at a learned price."""
    qualify: QualifySpec | None = None
    """What the verifier must have shown; ``null`` asks nothing."""
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


class AdvantageSpec(Axis):
    """Imitation weighted by advantage: an episode weighs exp((score - baseline) / beta)."""

    beta: float = Field(gt=0)
    """Temperature in units of the score: the smaller, the more the best episodes count."""
    cap: float = Field(gt=0)
    """No episode weighs more."""
    baseline: Literal["group", "data"]
    """``group``: mean score of the scored attempts at the task. ``data``: of all scored ones."""


class DataSpec(Axis):
    """Axis 2: who produced the data, and how often it is refreshed."""

    regime: Literal["fixed", "iterative", "online"] = "online"
    """``fixed``: stored or expert episodes. ``iterative``: sampled by the policy, in rounds, and
    reused. ``online``: sampled by the current policy."""
    origin: str = "policy"
    """``policy``, ``expert`` (the environment's own demonstrations), ``data_set`` (the rows of
    ``demonstrations`` or ``preferences``) or a folder of episodes."""
    demonstrations: DataSetSpec | None = None
    """Origin ``data_set``: conversations to imitate."""
    preferences: DataSetSpec | None = None
    """Origin ``data_set``: pairs of answers, or for KTO labelled answers."""
    held_out: DataSetSpec | None = None
    """Imitation: conversations whose token loss every evaluation shows; ``null`` takes the expert's
    on the evaluated tasks, where there is one."""
    bad_rows: Literal["stop", "skip"] = "stop"
    """A row of a data set that cannot be used stops the run before it begins, or is skipped, and
    listed in ``bad_rows.jsonl``."""
    groups: Positive = 32
    """Tasks in one batch."""
    group_size: Positive = 8
    """Attempts at each task."""
    size: Positive | None = None
    """Fixed data: number of demonstrations; ``null`` uses each once (expert) or all (folder,
    data set)."""
    advantage: AdvantageSpec | None = None
    """Stored episodes: weigh each by its logged score; ``null`` imitates all alike."""
    rounds: RoundsSpec | None = None
    """Regime ``iterative``: what a round samples, and what is kept of it."""
    pairs: PairsSpec | None = None
    """Preferences: how pairs are made of attempts at one task."""
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
    denominator: Literal["token", "response", "segment", "episode", "prompt", "fixed", "pair"] = (
        "episode"
    )
    """What the loss averages over; ``pair`` belongs to preferences of two sides."""
    inner: Literal["token", "episode"] | None = None
    """Denominator ``prompt``: how items inside a prompt are averaged."""
    length: Positive | None = None
    """Denominator ``fixed``: the declared number of tokens that one episode is divided by."""
    forced: Literal["in", "out"] = "in"
    """Whether tokens that sampling forced (a recorded set of one) count in denominators. They are
    no decision and have no gradient, so ``out`` makes every other token count for more."""
    gated: Literal["in", "out"] = "in"
    """Whether tokens that a gate has closed count in denominators. With ``out`` they leave the
    loss, its penalty and entropy, too, and what is left counts for more; a gate on the moving
    ratio then costs a forward pass a step."""


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
    points: Positive | None = None
    """In place of ``every``: evaluations on ``selection`` at so many equal shares of the budget,
    each after the first batch that reached it. Runs of unlike batches meet at equal budgets."""
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
    """Whole checkpoints kept, the newest; that of the best success on `selection` stays as well."""


class RunSpec(Axis):
    """Seed, evaluation, checkpoints."""

    seed: NonNegative = 0
    """Seeds initialisation and sampling; ``task.options.seed`` orders the training tasks."""
    evaluation: EvaluationSpec = EvaluationSpec()
    """When success is measured."""
    checkpoints: CheckpointSpec = CheckpointSpec()
    """When the run can be resumed from."""
    traces: Positive | None = 10
    """Every so many batches ratio, advantage and value of every token are kept for `hexad view`;
    ``null`` keeps none."""


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
    """Threads of torch; ``null`` leaves torch's own choice, and means one in a rollout worker."""


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
