import pytest
from learner_world import assign, episode, random_episodes, recipe, segment, train

from hexad.contract.ending import EndingKind
from hexad.learner.assemble import assemble


def test_statistics_do_not_depend_on_the_split():
    """O19 items 1 and 3: sums and counts, never means of means."""
    episodes = random_episodes(21)
    reports = [
        train(episodes, recipe(update={"epochs": 2}, system={"micro_batch_tokens": limit}))[1]
        for limit in (1, 50, 10_000)
    ]
    for report in reports[1:]:
        assert set(report.tallies) == set(reports[0].tallies)
        for name, tally in report.tallies.items():
            base = reports[0].tallies[name]
            assert (tally.count, tally.missing) == (base.count, base.missing)
            assert tally.sum == pytest.approx(base.sum, abs=1e-9)
            assert tally.high == pytest.approx(base.high, abs=1e-9)


def test_lengths_are_true_lengths():
    """O07, O19 item 6: two segments are one episode; a cut or unscored one counts in full."""
    long = segment(range(9), [0] + [1] * 8)
    short = segment([1, 2, 3], [0, 1, 0])
    cut = EndingKind.TRUNCATED_TOKENS
    episodes = [
        episode("a", [long, short], ending=cut),
        episode("b", [short], reward=None),
        episode("c", [short], reward=0.0),
    ]
    _, report = train(episodes, recipe())
    lengths = report.tallies["length/action_tokens"]
    assert (lengths.count, lengths.sum, lengths.high) == (3, 11, 9)
    assert report.loss_tokens == 10


def test_clip_shares_are_by_side_and_sign():
    _, report = train(random_episodes(22), recipe(update={"epochs": 4, "optimizer": {"lr": 0.05}}))
    shares = {name: t for name, t in report.tallies.items() if name.startswith("clip/")}
    kinds = ("", "_positive", "_negative", "/length_0", "/lag_0")
    assert set(shares) == {f"clip/{side}{kind}" for side in ("below", "above") for kind in kinds}
    assert all(0 <= t.low and t.high <= 1 for t in shares.values())
    assert shares["clip/above_positive"].sum > 0 and shares["clip/below_negative"].sum > 0
    batch = assemble(random_episodes(22))
    advantage = assign(batch, recipe()).advantage
    assert shares["clip/above_positive"].count == 4 * int((advantage > 0).sum())
    assert shares["clip/above_negative"].count == 4 * int((advantage < 0).sum())
