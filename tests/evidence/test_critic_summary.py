from io import StringIO

from rich.console import Console

from hexad.evidence.summary import critic_report


def test_the_report_shows_every_slice_and_keeps_undefined_undefined():
    row = {
        "n": 1200,
        "explained_variance": 0.61,
        "return_mean": 0.5,
        "return_std": 0.5,
        "value_mean": 0.48,
        "bias": -0.02,
    }
    flat = {**row, "n": 7, "explained_variance": None, "return_std": 0.0}
    critic = {
        "slices": {"all": row, "horizon 16-31": row, "horizon 2-3": flat},
        "batches": 3,
        "steps": 12,
        "behind": 2,
        "bootstrapped": 5,
        "missing": 0,
    }
    out = StringIO()
    Console(file=out, width=120).print(critic_report({"name": "ppo", "critic": critic}))
    text = " ".join(out.getvalue().split())
    assert "1,200" in text and "0.610" in text and "-0.020" in text
    assert text.count("undefined") == 2  # the cell and the caption that explains it
    assert "5 episodes bootstrapped" in text and "2 policy steps behind" in text
    assert text.index("all") < text.index("horizon 2-3") < text.index("horizon 16-31")
