"""Rules over curves: a healthy run names nothing, and each injected symptom is named."""

import math

import numpy as np
import pytest

from hexad.evidence.diagnosis import curves as rules
from hexad.evidence.diagnosis.curves import RULES, Curves
from hexad.evidence.diagnosis.series import Series
from hexad.recipe.load import load

BATCHES = 120
GRPO = "method: grpo\nbudget: {episodes: 64}\n"
ASYNC = (
    "timing={mode: asynchronous, max_lag: 2}",
    "update.correction={ratio: proximal, rule: tis, high: 2.0}",
)


@pytest.fixture
def recipe(tmp_path):
    (tmp_path / "r.yaml").write_text(GRPO)
    return lambda *overrides: load(tmp_path / "r.yaml", list(overrides))


def level(batch, start=0.5, end=0.97):
    return start + (end - start) * (1 - math.exp(-3 * batch / BATCHES)) / (1 - math.exp(-3))


def run(seed=0, **columns):
    """Rows of a healthy run with noise; a column is replaced by ``f(batch) -> value``."""
    rng, rows = np.random.default_rng(seed), []
    healthy = {
        "reward/success": level,
        "group/signal": lambda b: 0.3 + 0.6 * (1 - level(b)),
        "policy/entropy/mean": lambda b: 0.05 + 0.6 * (1 - level(b)),
        "episode/turns": lambda b: 3.4,
        "length/action_tokens/mean": lambda b: 35.0,
        "ending/truncated_tokens": lambda b: 0.05 * (1 - level(b)),
        "episode/refused": lambda b: 0.0,
        "policy/kl/mean": lambda b: 2e-4,
        "mismatch/engine/max": lambda b: 3e-6,
    }
    for batch in range(BATCHES):
        row = {"step": batch}
        for key, value in (healthy | columns).items():
            mean = value(batch)
            row[key] = mean + rng.normal(0, 0.03) * mean
        rows.append(row)
    return rows


def selection(success=level, seed=0):
    rng, rows = np.random.default_rng(seed), []
    for b in range(0, 121, 10):
        correct = round(200 * (success(b) + rng.normal(0, 0.015)))
        rows.append({"step": b, "success": correct / 200, "correct": correct, "scored": 200})
    return rows


def named(curves):
    found = [finding for rule in RULES if (finding := rule(curves)) is not None]
    return [f.symptom.key for f in sorted(found, key=lambda f: -f.confidence)], found


@pytest.mark.parametrize("seed", range(12))
def test_a_healthy_run_names_nothing(recipe, seed):
    assert named(Curves(recipe(), run(seed), selection(seed=seed)))[0] == []
    stalled = {"reward/success": lambda b: 0.97, "group/signal": lambda b: 0.1}
    assert named(Curves(recipe(), run(seed, **stalled), selection(lambda b: 0.96, seed)))[0] == []


FLAT = {
    "reward/success": lambda b: 0.5,
    "group/signal": lambda b: 0.5,
    "policy/entropy/mean": lambda b: 0.35,
}
RISES = {"reward/success": level}
LATE = 60
CASES = {
    "no-contrast": FLAT | {"reward/success": lambda b: 0.05, "group/signal": lambda b: 0.04},
    "drift": {
        "reward/success": lambda b: level(b) if b < LATE else level(LATE) - 0.006 * (b - LATE),
        "policy/kl/mean": lambda b: 2e-4 if b < LATE else 5e-3,
    },
    "early-end": FLAT | {"episode/turns": lambda b: 3.4 - 0.01 * b},
    "entropy-collapse": FLAT | {"policy/entropy/mean": lambda b: 0.6 * math.exp(-b / 20)},
    "length-drift": FLAT | {"length/action_tokens/mean": lambda b: 35 + 0.5 * b},
    "engine-mismatch": {"mismatch/engine/max": lambda b: 0.02},
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("key", CASES)
def test_an_injected_symptom_is_named_first(recipe, key, seed):
    columns = CASES[key]
    held = selection(columns.get("reward/success", level), seed)
    keys, found = named(Curves(recipe(), run(seed, **columns), held))
    assert keys[0] == key
    first = max(found, key=lambda f: f.confidence)
    assert first.evidence and 0.5 <= first.confidence <= 1 and first.symptom.tries


def test_a_finding_says_since_when(recipe):
    keys, found = named(Curves(recipe(), run(**CASES["drift"])))
    (drift,) = (f for f in found if f.symptom.key == "drift")
    assert LATE < drift.since <= LATE + 25 and "KL" in " ".join(drift.evidence)
    late = run(**{"mismatch/engine/max": lambda b: 0.02 if b >= 80 else 1e-6})
    assert rules.engine_mismatch(Curves(recipe(), late)).since == 80
    assert keys


def test_a_fall_in_training_is_no_drift_where_selection_holds(recipe):
    columns = CASES["drift"]
    assert rules.drift(Curves(recipe(), run(**columns), selection())) is None
    fell = selection(columns["reward/success"])
    finding = rules.drift(Curves(recipe(), run(**columns), fell))
    assert finding is not None and finding.confidence == pytest.approx(0.85)
    burst = columns | {"policy/kl/mean": lambda b: 0.5 if b == LATE else 2e-4}
    finding = rules.drift(Curves(recipe(), run(**burst), fell))
    assert finding.confidence == 0.95 and f"KL of batch {LATE} is" in " ".join(finding.evidence)


def test_a_fall_within_the_noise_of_few_tasks_is_no_drift(recipe):
    rows, rng = run(), np.random.default_rng(5)
    for row in rows:  # eight tasks a batch, all or nothing
        row["reward/success"] = float(rng.binomial(8, 0.5)) / 8
    assert rules.drift(Curves(recipe(), rows)) is None
    few = [{"step": b, "success": c / 30, "correct": c, "scored": 30}
           for b, c in ((0, 15), (40, 19), (80, 14), (120, 15))]  # fmt: skip
    assert rules.drift(Curves(recipe(), rows, few)) is None


def test_a_contrast_that_was_lost_is_a_consequence(recipe):
    lost = {
        "group/signal": lambda b: 0.6 if b < 20 else 0.02,
        "reward/success": lambda b: 0.5 if b < 20 else 0.02,
    }
    finding = rules.no_contrast(Curves(recipe(), run(**lost)))
    assert finding.confidence == 0.6 and "had a contrast before" in finding.evidence[-1]
    cut = CASES["no-contrast"] | {"ending/truncated_turns": lambda b: 0.5}
    keys, found = named(Curves(recipe(), run(**cut)))
    assert keys[0] == "early-end" and "no-contrast" in keys
    assert "from the start" in next(f for f in found if f.symptom.key == "no-contrast").evidence[-1]


def test_attempts_that_give_up_at_once_have_no_contrast_in_consequence(recipe):
    """Both are seen, and the one that explains the other is named first."""
    columns = {
        "reward/success": lambda b: 0.03,
        "group/signal": lambda b: 0.02 + 0.7 * math.exp(-b / 10),
        "episode/turns": lambda b: 1.0 + 2.0 * math.exp(-b / 10),
        "policy/entropy/mean": lambda b: 0.35,
    }
    keys, found = named(Curves(recipe(), run(**columns), []))
    assert keys[0] == "early-end" and "no-contrast" in keys
    (contrast,) = (f for f in found if f.symptom.key == "no-contrast")
    assert "give up at once" in contrast.evidence[-1]


def test_a_fall_on_selection_begins_behind_its_own_peak(recipe):
    """Training stood below that peak all the time."""
    held = [
        {"step": step, "success": correct / 200, "correct": correct, "scored": 200}
        for step, correct in ((0, 100), (30, 180), (60, 120), (90, 118))
    ]
    flat = run(**(FLAT | {"reward/success": lambda b: 0.6}))
    assert rules.drift(Curves(recipe(), flat, held)).since == 60


def test_rounds_of_preferences_have_no_contrast_to_lose_but_success(recipe):
    """Few batches sample, so a fall is read from the evaluations alone."""
    rounds = recipe("method=kto", "budget={train_tokens: 64}", "data.rounds.tasks=8")
    rows = [{"step": b, "group/signal": 0.0} for b in range(40)]
    held = [
        {"step": step, "success": correct / 200, "correct": correct, "scored": 200}
        for step, correct in ((0, 100), (20, 90), (40, 0))
    ]
    keys, (finding,) = named(Curves(rounds, rows, held))
    assert keys == ["drift"] and "from 50% at batch 0 to 0%" in finding.evidence[0]
    assert finding.since == 40
    assert named(Curves(rounds, rows, held[:2]))[0] == []


def test_a_policy_that_repeats_itself_is_cut_in_consequence(recipe):
    columns = CASES["entropy-collapse"] | {"ending/truncated_tokens": lambda b: min(0.9, b / 60)}
    keys, found = named(Curves(recipe(), run(**columns), selection(lambda b: 0.5)))
    assert keys[:2] == ["entropy-collapse", "early-end"]
    (cut,) = (f for f in found if f.symptom.key == "early-end")
    assert cut.confidence == 0.6 and "stopped exploring" in " ".join(cut.evidence)


def test_limits_that_cut_from_the_start_are_named_while_success_grows(recipe):
    cut = {"ending/truncated_turns": lambda b: 0.5, "reward/success": lambda b: 0.1 + 0.003 * b}
    finding = rules.early_end(Curves(recipe(), run(**cut)))
    assert finding.confidence == 0.85
    falling = cut | {"ending/truncated_turns": lambda b: 0.6 * math.exp(-b / 20)}
    assert rules.early_end(Curves(recipe(), run(**falling))) is None


def test_a_low_temperature_magnifies_rounding(recipe):
    rows = run(**{"mismatch/engine/max": lambda b: 3e-4})
    assert rules.engine_mismatch(Curves(recipe(), rows)) is not None
    cold = recipe("policy.sampling.temperature=0.1")
    assert rules.engine_mismatch(Curves(cold, rows)) is None


def test_a_gap_between_training_and_selection_is_a_hole(recipe):
    fell = selection(lambda b: 0.55 - 0.002 * b)
    (finding,) = named(Curves(recipe(), run(), fell))[1]
    assert finding.symptom.key == "verifier-hole" and finding.confidence >= 0.9
    both = run(**{"reward/success": lambda b: 0.35 - 0.0007 * b})  # training fell, too, but less
    assert rules.verifier_hole(Curves(recipe(), both, fell)) is None
    easier = selection(lambda b: level(b) - 0.2)  # a constant gap is a harder split
    assert named(Curves(recipe(), run(), easier))[0] == []
    assert rules.verifier_hole(Curves(recipe(), run(), fell[:3])) is None


def test_success_by_a_violation_opens_no_gap(recipe):
    """Evaluations count it as none; training's column of verdicts does, with a column beside it."""
    columns = {"reward/success": lambda b: 0.5 + 0.004 * b}
    held = selection(lambda b: 0.5)
    assert rules.verifier_hole(Curves(recipe(), run(**columns), held)) is not None
    columns["conduct/unauthorised_success"] = lambda b: 0.004 * b
    assert rules.verifier_hole(Curves(recipe(), run(**columns), held)) is None


def test_staleness_needs_an_asynchronous_run_and_a_sign(recipe):
    columns = FLAT | {
        "episode/refused": lambda b: 0.3,
        "bucket/lag_0/outside": lambda b: 0.01,
        "bucket/lag_2/outside": lambda b: 0.5,
    }
    old = {"accepted": {"lost": {"stale_version": 30}}}
    books = {"books": {"generated": 1000, "dropped": {"stale_version": 300}}, "funnel": old}
    rows = run(**columns)
    keys, found = named(Curves(recipe(*ASYNC), rows, books=books))
    assert keys[0] == "stale" and len(found[0].evidence) == 4
    assert found[0].confidence == pytest.approx(0.95)
    assert rules.stale(Curves(recipe(), rows, books=books)) is None
    assert rules.stale(Curves(recipe(*ASYNC), run(**FLAT))) is None
    young = columns | {"bucket/lag_2/outside": lambda b: 0.0, "episode/refused": lambda b: 0.0}
    assert rules.stale(Curves(recipe(*ASYNC), run(**young))) is None
    faults = {"valid": {"lost": {"environment": 300}}}
    few = columns | {"bucket/lag_2/outside": lambda b: 0.0}
    assert rules.stale(Curves(recipe(*ASYNC), run(**few), books={"funnel": faults})) is None
    rising = rules.stale(Curves(recipe(*ASYNC), run(**(columns | RISES)), books=books))
    assert rising.confidence == pytest.approx(0.8), "it is seen, and success rises all the same"


def test_a_critic_or_a_single_attempt_has_no_contrast_to_lose(recipe):
    rows = run(**CASES["no-contrast"])
    single = recipe("data.group_size=1", "method=ppo")
    assert rules.no_contrast(Curves(single, rows)) is None
    assert rules.no_contrast(Curves(recipe(), rows[:9])) is None


def test_a_series_by_hand():
    rows = [{"step": i, "x": float(i)} for i in range(30)]
    series = Series.of([*rows, {"step": 30, "x": math.nan}, {"step": 31}], "x")
    assert (len(series), series.early, series.late, series.recent) == (30, 4.5, 24.5, 24.5)
    # Var of 0..9 with ddof 1 is 110/12; standard error sqrt(2 * 110/12/10).
    assert series.z == pytest.approx(20 / math.sqrt(2 * 110 / 12 / 10))
    assert series.smooth.steps[0] == 9 and series.smooth.values[0] == pytest.approx(4.5)
    assert series.since(lambda v: v > 20) == 25 and series.since(lambda v: v < 20) is None
    assert len(series.before(10)) == 10 and series.after(10).steps[0] == 10
    flat = Series.of([{"step": i, "x": 1.0} for i in range(30)], "x")
    assert flat.z == 0.0 and flat.change == 0.0
    assert Series.of([{"step": 0, "b": 2.0}], "a", "b").values.tolist() == [2.0]
