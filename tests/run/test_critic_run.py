"""A critic in the real loop: its report, its books, and a resume that changes no bit."""

import json
import shutil

import pytest
from tiny import hexad, train, weights

PPO = (
    "method=ppo",
    "data.groups=4",
    "data.group_size=1",
    "credit.whiten=null",
    "critic.pretrain=1",
)
FORMS = {
    "own": (),
    "rescored": ("critic.rescore=true", "critic.updates=2"),
    "histogram": ("critic.head=hl_gauss", "critic.support=[-1.0, 2.0]"),
    "shared": ("critic.trunk=shared",),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_run_with_a_critic_reports_it_and_resumes_bit_for_bit(tmp_path, form):
    whole, again = tmp_path / "whole" / "run", tmp_path / "again" / "run"
    for run in (whole, again):
        run.parent.mkdir()
    code, text = train(whole, *PPO, *FORMS[form])
    assert code == 0 and "Critic of tiny, on its last batch" in hexad("report", whole)[1], text
    shutil.copytree(whole, again)
    shutil.rmtree(again / "checkpoints" / "step_2")
    undone = again / "traces" / "step_9.parquet"
    undone.write_bytes(b"a batch of the past that is rewound")
    code, text = train(again, *PPO, *FORMS[form], "--resume")
    assert code == 0 and weights(again) == weights(whole), text
    assert not undone.exists() and (again / "traces" / "step_0.parquet").is_file()
    for run in (whole, again):
        ledger = json.loads((run / "ledger.jsonl").read_text().splitlines()[-1])
        cut, ended = ledger["critic"]["bootstrapped"], ledger["critic"]["slices"]
        assert cut + ended.get("first", {"n": 0})["n"] == 4 and ledger["critic"]["missing"] == 0
        assert ledger["critic"]["batches"] == 1
    first, second = (
        [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        for run in (whole, again)
    )
    for left, right in zip(first, second, strict=True):
        assert {k: v for k, v in left.items() if not k.startswith("time/")} == {
            k: v for k, v in right.items() if not k.startswith("time/")
        }
    assert first[0]["tokens/train"] == 0 or form == "shared"  # the policy waits for its critic
    assert weights(whole, 1) != weights(whole, 2)
