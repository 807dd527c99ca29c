"""Admission: every reason is reached by one hand-made fault, and by nothing else."""

from dataclasses import replace

import numpy as np
import pytest

from builders import episode, expert, provenance, segment
from fixtures.episodes import BAD, BAD_TOGETHER, CUT, CUTTING, DEMONSTRATION, GOOD, STRICT
from hexad.contract.admission import Needs, Reason, admit, admit_group
from hexad.contract.arrow import to_ipc
from hexad.contract.ending import Ending, EndingKind
from hexad.contract.lag import lag, oldest_version
from hexad.contract.verdict import VerdictStatus


def reasons(violations):
    return [violation.reason for violation in violations]


@pytest.mark.parametrize("name", GOOD)
def test_good_episode_passes_the_strictest_demands(name):
    assert admit(GOOD[name], STRICT) == []


def test_supports_pass_where_the_sampling_cuts():
    for name in ("cut", "all_forced"):
        assert admit(CUT[name], CUTTING) == admit(CUT[name], STRICT) == []
        assert admit(CUT[name], Needs.for_sft()) == []
    assert CUT["cut"].segments[0].forced.nonzero()[0].tolist() == [5]
    assert CUT["all_forced"].segments[0].forced.tolist() == segment().action.tolist()
    assert not segment().forced.any()


def test_imitation_needs_no_supports():
    assert admit(episode(), replace(Needs.for_sft(), support=True)) == []


@pytest.mark.parametrize("name", BAD)
def test_each_fault_gives_exactly_its_reason(name):
    case = BAD[name]
    found = admit(case.episode, case.needs)
    assert set(reasons(found)) == {case.reason}, found
    assert all(violation.where and violation.detail for violation in found)


@pytest.mark.parametrize("name", BAD_TOGETHER)
def test_each_fault_between_episodes_gives_exactly_its_reason(name):
    episodes, reason = BAD_TOGETHER[name]
    assert set(reasons(admit_group(episodes, STRICT))) == {reason}


def test_every_reason_has_a_case():
    covered = {case.reason for case in BAD.values()} | {r for _, r in BAD_TOGETHER.values()}
    assert covered == set(Reason)


CODES = """
both_endings decreasing_version digest_mismatch duplicate_episode duplicate_member empty_action
ending_flags environment_fault forced_logprob future_version infrastructure_fault invalid_score
invalid_support invalid_weight length_mismatch logprob_off_action mask_mismatch missing_digest
missing_logprob missing_support missing_version mixed_provenance mixed_tasks no_final_observation
nonfinite_logprob nonfinite_reward not_closed orphan_version outside_support positive_logprob
reward_owner schema span_table stale_version stray_support unequal_initial_state unpinned_digest
unrecorded_version unreplayable_segment unsampled_version unscored user_cancel version_off_action
weight_off_action weight_on_prefix wrong_split
"""


def test_reason_codes_are_stable():
    # Ledgers of old runs hold these words: one may be added, none renamed.
    assert sorted(map(str, Reason)) == CODES.split()


def test_good_episodes_fit_together():
    assert admit_group(list(GOOD.values()), STRICT) == []
    assert admit_group([], STRICT) == []


def test_admission_changes_nothing():
    episodes = [
        *GOOD.values(),
        *(case.episode for case in BAD.values() if case.reason is not Reason.LENGTH_MISMATCH),
    ]
    before = to_ipc(episodes)
    for case in BAD.values():
        admit(case.episode, case.needs)
    for good in GOOD.values():
        admit(good, STRICT)
    admit_group(episodes, STRICT)
    assert to_ipc(episodes) == before


def test_all_faults_of_one_episode_are_listed():
    both = replace(BAD["nan_logprob"].episode, ending=Ending(EndingKind.TERMINAL, True, True))
    demands = replace(STRICT, final_observation=False)
    assert set(reasons(admit(both, demands))) == {Reason.MISSING_LOGPROB, Reason.BOTH_ENDINGS}


def test_violation_names_the_first_token_and_counts_all():
    values = segment().logprob.copy()
    values[[6, 7, 13]] = np.nan
    found = admit(
        episode(
            segments=(
                segment(logprob=-1.0),
                replace(segment(), logprob=values, parent=0, origin="x"),
            )
        ),
        STRICT,
    )
    assert [(v.where, v.detail) for v in found] == [
        ("segments[1].logprob[6]", "no behaviour log-prob (3 tokens)")
    ]


def test_demonstrations_pass_for_imitation_only():
    assert admit(DEMONSTRATION, Needs.for_sft()) == []
    assert admit(DEMONSTRATION, Needs.for_sft({"tokenizer": "tokenizer-1"})) == []
    assert set(reasons(admit(DEMONSTRATION, Needs()))) == {
        Reason.UNSCORED,
        Reason.MISSING_LOGPROB,
        Reason.MISSING_VERSION,
    }


def test_imitation_still_refuses_another_tokenizer_and_faults():
    wrong = admit(DEMONSTRATION, Needs.for_sft({"tokenizer": "tokenizer-2"}))
    assert reasons(wrong) == [Reason.DIGEST_MISMATCH]
    fault = expert(ending=Ending.of(EndingKind.ENVIRONMENT_ERROR))
    assert reasons(admit(fault, Needs.for_sft())) == [Reason.ENVIRONMENT_FAULT]


def test_policy_episodes_serve_imitation_too():
    assert all(admit(good, Needs.for_sft()) == [] for good in GOOD.values())


@pytest.mark.parametrize("kind", EndingKind)
def test_usual_flags_of_every_kind_are_consistent(kind):
    found = reasons(admit(episode(ending=Ending.of(kind)), Needs()))
    assert Reason.ENDING_FLAGS not in found and Reason.BOTH_ENDINGS not in found


@pytest.mark.parametrize(
    "kind",
    [
        EndingKind.PAUSED,
        EndingKind.USER_CANCEL,
        EndingKind.ENVIRONMENT_ERROR,
        EndingKind.INFRASTRUCTURE_ERROR,
    ],
)
def test_what_is_no_outcome_may_set_no_flag(kind):
    found = reasons(admit(episode(ending=Ending(kind, True, False)), Needs()))
    assert Reason.ENDING_FLAGS in found


def test_environment_rule_may_truncate_an_invalid_action():
    for flags in ((True, False), (False, True)):
        ending = Ending(EndingKind.INVALID_ACTION, *flags)
        assert admit(episode(ending=ending), Needs()) == []


def test_truncated_without_bootstrap_may_end_in_an_action():
    cut = episode(ending=Ending.of(EndingKind.TRUNCATED_TOKENS))
    assert admit(cut, replace(STRICT, final_observation=False)) == []


@pytest.mark.parametrize("status", [s for s in VerdictStatus if "error" in s or "failure" in s])
def test_unscored_verdict_is_never_a_reward_even_with_a_score(status):
    # O16: a grader that broke but left a number behind has judged nothing.
    judged = replace(episode().verdict, status=status, score=0.0)
    assert reasons(admit(episode(verdict=judged), Needs())) == [Reason.UNSCORED]


VERSIONS = {0: "w0", 1: "w1", 2: "w2", 3: "w3"}


def rollout(*versions):
    """An episode whose sampled tokens have these versions."""
    part = segment((("user", 1), ("text", len(versions))))
    values = np.array([-1, *versions], np.int32)
    known = tuple((v, VERSIONS[v]) for v in sorted(set(versions)))
    return episode(segments=(replace(part, version=values),), provenance=provenance(versions=known))


@pytest.mark.parametrize(
    ("limit", "kept"), [(3, "R1 R2 R3 R4"), (2, "R2 R3 R4"), (1, "R4"), (0, "R4")]
)
def test_lag_is_learner_minus_oldest_version(limit, kept):
    # O14, learner at version 3.
    rollouts = {
        "R1": rollout(0, 0, 0),
        "R2": rollout(1, 1, 3),
        "R3": rollout(1, 1),
        "R4": rollout(3, 3),
    }
    needs = Needs(max_lag=limit, learner_version=3, lineage=VERSIONS)
    found = {name: reasons(admit(made, needs)) for name, made in rollouts.items()}
    assert " ".join(name for name, why in found.items() if not why) == kept
    assert {tuple(why) for why in found.values() if why} <= {(Reason.STALE_VERSION,)}


def weighed(made, *weights):
    """``made`` with these weights on its one segment, the prompt's token included."""
    return replace(made, segments=(replace(made.segments[0], weight=weights),))


@pytest.mark.parametrize(
    ("weights", "age"),
    [
        ((0.0, 1.0, 1.0, 1.0), 3),
        ((0.0, 0.0, 0.0, 1.0), 3),  # untrained, but in the context of what is trained
        ((0.0, 1.0, 0.0, 0.0), 3),
        ((0.0, 0.0, 0.0, 0.0), None),
    ],
)
def test_what_conditioned_a_trained_token_ages_it(weights, age):
    made = weighed(rollout(0, 2, 3), *weights)
    assert lag(made, 3) == age
    needs = Needs(max_lag=2, learner_version=3, lineage=VERSIONS)
    assert reasons(admit(made, needs)) == ([] if age is None else [Reason.STALE_VERSION])
    assert admit(made, replace(needs, max_lag=3)) == []  # the boundary is accepted


def chain(*parts):
    """An episode of one segment a ``(versions, trained)``, in order."""
    segments = []
    for number, (versions, trained) in enumerate(parts):
        base = rollout(*versions).segments[0]
        weight = [0.0] + [float(trained)] * len(versions)
        parent = {"parent": number - 1, "origin": "summary"} if number else {}
        segments.append(replace(base, weight=weight, **parent))
    known = sorted({v for versions, _ in parts for v in versions})
    made = provenance(versions=tuple((v, VERSIONS[v]) for v in known))
    return episode(segments=tuple(segments), provenance=made)


def test_an_earlier_context_ages_and_a_later_one_does_not():
    assert oldest_version(chain(((1,), False), ((2, 3), True))) == 1
    assert oldest_version(chain(((2, 3), True), ((1,), False))) == 2  # say, another agent's
    assert oldest_version(chain(((1, 1), False), ((3,), False))) is None


def test_a_torn_segment_says_nothing_of_versions():
    first, second = chain(((1,), True), ((2,), True)).segments
    torn = replace(second, version=second.version[:-1])
    known = tuple((v, VERSIONS[v]) for v in (1, 2))
    made = episode(segments=(first, torn), provenance=provenance(versions=known))
    assert reasons(admit(made, Needs(max_lag=3, learner_version=3))) == [Reason.LENGTH_MISMATCH]


def test_exchanged_version_tags_are_refused():
    needs = Needs(max_lag=3, learner_version=3, lineage=VERSIONS)
    old, new = rollout(1, 1), rollout(3, 3)
    swapped = [
        replace(old, provenance=new.provenance),
        replace(new, provenance=old.provenance),
        replace(rollout(2, 2), provenance=rollout(1, 2).provenance),  # the 1 was overwritten
    ]
    both = [Reason.UNRECORDED_VERSION, Reason.UNSAMPLED_VERSION]
    assert [reasons(admit(e, needs)) for e in swapped] == [both, both, [both[1]]]
    turned = replace(rollout(1, 3).segments[0], version=[-1, 3, 1])
    found = admit(replace(rollout(1, 3), segments=(turned,)), needs)
    assert reasons(found) == [Reason.DECREASING_VERSION]
    crossed = provenance(versions=((1, "w3"), (3, "w1")))
    found = admit(replace(rollout(1, 3), provenance=crossed), needs)
    assert reasons(found) == [Reason.ORPHAN_VERSION] * 2


def test_stale_violation_tells_the_lag():
    found = admit(rollout(1, 1, 3), Needs(max_lag=1, learner_version=3))
    assert found[0].detail == "lag 2 of version 1 at learner version 3, limit 1"


def test_parts_that_agree_per_environment_may_differ_between_them():
    first = episode(0)
    second = episode(
        1,
        group_id="g",
        environment="search",
        task_id="t",
        provenance=provenance(environment="e2", tools="t2", verifier="v2"),
    )
    assert admit_group([first, second], STRICT) == []
    third = replace(second, provenance=provenance(tokenizer="other"))
    assert reasons(admit_group([first, third], STRICT)) == [Reason.MIXED_PROVENANCE]


def test_equal_task_ids_of_two_environments_are_two_tasks():
    pair = [episode(0), episode(1, environment="search")]
    assert reasons(admit_group(pair, STRICT)) == [Reason.MIXED_TASKS]


def test_imitation_may_mix_weights_but_not_templates():
    fork = episode(1, provenance=provenance(versions=((0, "fork-0"),)))
    assert admit_group([episode(0), fork], Needs.for_sft()) == []
    other = episode(1, provenance=provenance(template="other"))
    found = admit_group([episode(0), other], Needs.for_sft())
    assert [(v.reason, v.where) for v in found] == [(Reason.MIXED_PROVENANCE, "batch: template")]


def test_a_turn_that_was_cut_is_its_own_final_state():
    """Nothing follows a turn without a stop id; a whole turn was answered, and that is missing."""
    ended = BAD["cut_in_an_action"].episode
    last = int(ended.segments[-1].ids[-1])
    demands = replace(STRICT, stop_ids=frozenset({last}))
    assert reasons(admit(ended, demands)) == [Reason.NO_FINAL_OBSERVATION]
    assert admit(ended, replace(STRICT, stop_ids=frozenset({last + 1}))) == []


def test_a_final_state_beyond_the_positions_of_the_model_is_missing():
    ended = next(e for e in GOOD.values() if e.ending.truncated)
    length = len(ended.segments[-1])
    assert admit(ended, replace(STRICT, positions=length)) == []
    found = admit(ended, replace(STRICT, positions=length - 1))
    assert reasons(found) == [Reason.NO_FINAL_OBSERVATION]
    assert "do not fit" in found[0].detail
