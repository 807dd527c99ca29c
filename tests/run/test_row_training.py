"""A data set from end to end: rows, the books, a resume, a change of the data, pairs, labels."""

import json

import pytest
from short_run import rows
from tiny import hexad

from hexad.environments.registry import family
from hexad.evidence.folder import claim
from hexad.learner import checkpoint
from hexad.recipe.load import load
from hexad.run import compose, train

RECIPE = """
name: short
method: {method}
task:
  environment: calculator
  limits: {{turns: 3, turn_tokens: 24, context_tokens: 320}}
policy: {{model: "builtin:tiny"}}
data: {data}
update:
  minibatches: {steps}
  optimizer: {{lr: 4e-3, clip_norm: 1.0}}
budget: {{episodes: {episodes}}}
run:
  seed: 3
  evaluation: {{every: null, final: none}}
  checkpoints: {{every: 2, keep: 2}}
system: {{engine_rows: 12, threads: 1}}
"""
BAD = [b"{", b'{"prompt": "2+3"}', b'{"prompt": "2+3", "completion": ""}']


def calculator_rows(count):
    """The expert's demonstrations as rows of OpenAI's form, with tools."""
    made = family("calculator")
    tools = [
        {
            "type": "function",
            "function": {"name": t.name, "description": t.description, "parameters": t.parameters},
        }
        for t in made.tools
    ]
    found = []
    for task in made.tasks("train", count):
        messages = [{"role": "user", "content": task.data["expression"]}]
        for turn in made.demonstration(task).turns:
            said = {"role": "assistant", "content": turn.content}
            if turn.tool_calls:
                (call,) = turn.tool_calls
                arguments = json.dumps(dict(call.arguments))
                function = {"name": call.name, "arguments": arguments}
                said["tool_calls"] = [{"id": "1", "type": "function", "function": function}]
                a, op, b = call.arguments.values()
                result = str({"+": a + b, "-": a - b, "*": a * b}[op])
                messages += [said, {"role": "tool", "tool_call_id": "1", "content": result}]
            else:
                messages.append(said)
        found.append({"messages": messages, "tools": tools})
    return found


def write(folder, made, method, key, episodes=36, bad=()):
    lines = [json.dumps(row).encode() for row in made]
    (folder / "rows.jsonl").write_bytes(b"\n".join([*lines, *bad]) + b"\n")
    data = (
        f"{{regime: fixed, origin: data_set, groups: 4, bad_rows: skip, "
        f"{key}: {{path: {folder / 'rows.jsonl'}, format: jsonl}}"
        + ("" if method == "sft" else ", rounds: null, pairs: null")
        + "}"
    )
    path = folder / "short.yaml"
    steps = 2 if method == "sft" else 1
    path.write_text(RECIPE.format(method=method, data=data, episodes=episodes, steps=steps))
    return path


def logged(run, name):
    return [json.loads(line) for line in (run / name).read_text().splitlines()]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    recipe = write(folder, calculator_rows(10), "sft", "demonstrations", bad=BAD)
    code, output = hexad("train", recipe, "--run", folder / "run")
    assert code == 0, output
    return folder / "run", output + hexad("report", folder / "run")[1]


def test_a_file_of_rows_trains_and_every_dropped_row_is_listed(whole):
    run, output = whole
    losses = [row["policy/loss"] for row in logged(run, "metrics.jsonl")]
    assert len(losses) == 11 and losses[-1] < 0.8 * losses[0]  # passes of 4 + 4 + 2 rows
    assert [(row["row"], row["flaw"]) for row in logged(run, "bad_rows.jsonl")] == [
        (11, "invalid_json"),
        (12, "missing_side"),
        (13, "empty_target"),
    ]
    books = logged(run, "ledger.jsonl")[-1]
    flaws = {"invalid_json": 1, "missing_side": 1, "empty_target": 1}
    assert books["rows"]["read"] == 13 and books["rows"]["dropped"] == flaws
    assert books["books"]["generated"] == 0 and books["books"]["supplied"] > 0
    assert output.count("10 of 13 rows are used") == 1 and "row 12: missing_side" in output
    assert "dropped: 1 empty_target, 1 invalid_json, 1 missing_side" in output
    assert "rows read > used" in output and "13 > 10" in output


def test_an_interrupted_run_goes_on_at_the_row_and_not_on_other_data(whole, tmp_path):
    recipe = write(tmp_path, calculator_rows(10), "sft", "demonstrations", bad=BAD)
    run = tmp_path / "run"
    claim(run, load(recipe), resume=False)
    asked = iter([False] * 5)
    assert train(load(recipe), run, interrupted=lambda: next(asked, True)) == {
        "reason": "interrupted"
    }
    text = (tmp_path / "rows.jsonl").read_bytes()
    (tmp_path / "rows.jsonl").write_bytes(text.replace(b"2", b"3"))
    code, output = hexad("train", recipe, "--run", run, "--resume")
    assert code == 2 and "the data set has changed" in output
    (tmp_path / "rows.jsonl").write_bytes(text)
    assert hexad("train", recipe, "--run", run, "--resume")[0] == 0
    assert rows(run / "metrics.jsonl") == rows(whole[0] / "metrics.jsonl")
    ends = [checkpoint.newest(each).policy / "model.safetensors" for each in (run, whole[0])]
    assert ends[0].read_bytes() == ends[1].read_bytes()


def test_bad_rows_stop_a_run_before_it_begins(tmp_path):
    recipe = write(tmp_path, calculator_rows(2), "sft", "demonstrations", bad=BAD)
    code, output = hexad("train", recipe, "data.bad_rows=stop", "--run", tmp_path / "run")
    assert code == 2 and "3 of 5 rows are bad" in output and "row 4: missing_side" in output


PAIRS = [
    {"prompt": f"{a}+1", "chosen": f"{a + 1}", "rejected": f"{a}" if a < 7 else "x"}
    for a in range(1, 9)
]
LABELS = [
    {"prompt": row["prompt"], "completion": row[side], "label": side == "chosen"}
    for row in PAIRS
    for side in ("chosen", "rejected")
]


@pytest.mark.parametrize(("method", "made"), [("dpo", PAIRS), ("kto", LABELS)])
def test_pairs_and_labels_of_a_data_set_train(tmp_path, method, made):
    recipe = load(write(tmp_path, made, method, "preferences", episodes=80))
    with compose(recipe, tmp_path / "run") as loop:
        loop.run()
    metrics = logged(tmp_path / "run", "metrics.jsonl")
    neutral = {"dpo": 0.693147, "kto": 0.5}[method]
    assert metrics[0]["policy/loss/max"] == pytest.approx(neutral, abs=1e-4)
    assert metrics[-1]["policy/loss"] < neutral - 0.01
    (audit,) = logged(tmp_path / "run", "pairs.jsonl")
    assert audit["states"] is None, "rows name no states"
    if method == "dpo":
        assert audit["pairs"] == 8 and audit["sources"] == {"data set rows.jsonl": 8}
    else:
        assert (audit["desirable"], audit["undesirable"]) == (8, 8)
