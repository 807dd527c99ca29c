"""Signs fire on rows of metrics.jsonl: when they must, and not one batch earlier."""

from hexad.advice.triggers import TRIGGERS, Sign


def rows(**columns):
    length = max(len(values) for values in columns.values())
    named = {key.replace("__", "/"): values for key, values in columns.items()}
    return [{k: v[i] for k, v in named.items() if v[i] is not None} for i in range(length)]


def test_below_and_above_need_every_batch_of_the_window():
    sign = Sign("x", "below", 0.2, 3)
    assert sign.holds(rows(x=[0.9, 0.1, 0.1, 0.1]))
    assert not sign.holds(rows(x=[0.1, 0.1, 0.2]))  # 0.2 is not below
    assert not sign.holds(rows(x=[0.1, 0.1]))
    assert not sign.holds(rows(x=[0.1, None, 0.1]))
    assert Sign("x", "above", 0.05, 2).holds(rows(x=[0.0, 0.06, 0.06]))
    assert not Sign("x", "above", 0.05, 2).holds(rows(x=[0.06, 0.05]))


def test_rises_and_falls_compare_both_halves_of_the_window():
    # halves of the last four: means 0.25 and 0.75, a rise of 0.5
    values = [9.0, 0.0, 0.5, 0.5, 1.0]
    assert Sign("x", "rises", 0.5, 4).holds(rows(x=values))
    assert not Sign("x", "rises", 0.51, 4).holds(rows(x=values))
    assert not Sign("x", "falls", 0.1, 4).holds(rows(x=values))
    assert Sign("x", "falls", 0.5, 4).holds(rows(x=[1.0, 0.5, 0.5, 0.0]))


def test_no_contrast_fires_only_while_tasks_are_unsolved():
    trigger = TRIGGERS["no-contrast"]
    assert trigger.fires(rows(group__signal=[0.1] * 10, reward__success=[0.3] * 10))
    assert not trigger.fires(rows(group__signal=[0.1] * 10, reward__success=[0.97] * 10))
    assert not trigger.fires(rows(group__signal=[0.1] * 9, reward__success=[0.3] * 9))


def test_a_critic_worse_than_the_mean_fires():
    assert TRIGGERS["critic-off"].fires(rows(critic__explained_variance=[-0.1] * 10))
    assert not TRIGGERS["critic-off"].fires(rows(critic__explained_variance=[-0.1] * 9 + [0.1]))


def test_any_component_that_rises_while_success_falls_fires():
    up, down = [0.0] * 10 + [0.0625] * 10, [0.5] * 10 + [0.46875] * 10
    trigger = TRIGGERS["process-hacked"]
    other = [1.0] * 20
    assert trigger.fires(
        rows(reward__component__steps=up, reward__component__task=other, reward__success=down)
    )
    assert not trigger.fires(rows(reward__component__task=other, reward__success=down))
    assert not trigger.fires(rows(reward__component__steps=up, reward__success=other))


def test_a_sign_that_no_column_shows_never_fires():
    assert not TRIGGERS["heavy-barrier"].fires(rows(reward__success=[0.5] * 50))
    assert TRIGGERS["heavy-barrier"].text.startswith("nothing that a run writes tells: ")
    assert "evaluation.jsonl" in TRIGGERS["verifier-hole"].text


def test_a_batch_that_sampled_nothing_tells_nothing():
    trigger = TRIGGERS["process-hacked"]
    assert trigger.told({"reward/component/steps": 0.0, "reward/success": 0.5})
    assert not trigger.told({"reward/success": 0.5})
    assert not trigger.told({"reward/component/steps": 0.0, "reward/success": None})
    assert TRIGGERS["outside-the-data"].text.endswith("higher than 0.8 over 1 batch")
    assert TRIGGERS["outside-the-data"].fires(rows(data__states_outside=[0.5, 0.81]))
