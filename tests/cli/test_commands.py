"""The command line from outside: exit codes, messages, and one document on stdout."""

import json
import subprocess
import sys
import types
from pathlib import Path

import pytest
from rich.console import Console

from hexad.cli import main as entry
from hexad.contract.faults import ContractViolation, UserError
from hexad.recipe.load import load

ROOT = Path(__file__).parents[2]
RECIPE = str(ROOT / "recipes" / "calculator-grpo.yaml")
MODEL = "policy.model=builtin:tiny"


@pytest.fixture
def hexad(capsys):
    """Call ``hexad`` in this process: exit code, stdout, stderr."""

    def call(*arguments):
        with pytest.raises(SystemExit) as caught:
            entry.main([str(a) for a in arguments])
        streams = capsys.readouterr()
        return caught.value.code, streams.out, streams.err

    return call


@pytest.fixture
def fake_run(monkeypatch):
    """Replace the composition by ``train``; what it is given is kept in ``calls``."""

    def install(train=None, evaluate=None):
        module = types.ModuleType("hexad.run")
        module.train, module.evaluate = train, evaluate
        monkeypatch.setitem(sys.modules, "hexad.run", module)
        monkeypatch.setattr("hexad.run", module, raising=False)

    return install


def begun(recipe, run_dir, **rest):
    (run_dir / "metrics.jsonl").write_text("")
    return {"reason": "budget"}


def test_dry_run_prints_the_resolved_recipe_and_what_was_modified(hexad):
    code, out, err = hexad("train", RECIPE, "update.clip_high=0.3", "--dry-run")
    assert code == 0 and err == ""
    assert out.startswith("# grpo, modified: update.clip_high = 0.3 (preset 0.2)\n")
    assert "threshold: 1.0e-06" in out or "threshold: 1e-06" in out


def test_dry_run_output_is_a_recipe(hexad, tmp_path):
    _, out, _ = hexad("train", RECIPE, "--dry-run", "run.seed=4")
    (tmp_path / "again.yaml").write_text(out)
    assert load(tmp_path / "again.yaml") == load(RECIPE, ["run.seed=4"])


def test_dry_run_needs_no_torch():
    code = (
        "import sys\nfrom hexad.cli.main import main\n"
        f"try: main(['train', {RECIPE!r}, '--dry-run'])\n"
        "except SystemExit as end: assert end.code == 0\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, capture_output=True)


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("update.optimizer.lrr=1", "did you mean update.optimizer.lr?"),
        ("update.optimizer.lr=fast", "a number"),
        ("data.group_size=1", "2 or more"),
        ("policy.sampling.temperature=0", "temperature: 1.0"),
        ("method=grpoo", "did you mean grpo?"),
    ],
)
def test_a_users_mistake_is_one_plain_message_and_code_2(hexad, override, said):
    code, out, err = hexad("train", RECIPE, override)
    assert code == 2 and out == "" and said in err and "Traceback" not in err
    assert override in err


@pytest.mark.parametrize("flag", [["--dry-run"], []])
def test_json_errors_are_one_document(hexad, flag):
    code, out, err = hexad("train", RECIPE, "data.groups=x", "--json", *flag)
    error = json.loads(out)["error"]
    assert code == 2 and err == "" and out.count("\n") == 1
    assert error["kind"] == "user" and "data.groups" in error["what"] and error["where"]


def test_json_dry_run_is_one_document(hexad):
    code, out, err = hexad("train", RECIPE, "--dry-run", "--json")
    document = json.loads(out)
    assert code == 0 and err == "" and document["recipe"]["method"] == "grpo"
    assert document["method"] == ["grpo"]


@pytest.mark.parametrize(
    "arguments",
    [["train"], ["train", RECIPE, "--nonsense"], ["nonsense"], ["evaluate", "x", "--tasks", "0"]],
)
def test_a_wrong_command_line_is_code_2(hexad, arguments):
    code, out, err = hexad(*arguments)
    assert code == 2 and out == "" and err
    code, out, _ = hexad(*arguments, "--json")
    assert code == 2 and json.loads(out)["error"]["kind"] == "user"


def test_no_arguments_show_the_help(hexad):
    code, out, _ = hexad()
    assert code == 2 and "train" in out and "evaluate" in out


def test_a_run_folder_that_exists_names_both_ways_out(hexad, fake_run, tmp_path):
    (tmp_path / "metrics.jsonl").write_text("")
    fake_run(begun)
    code, _, err = hexad("train", RECIPE, MODEL, "--run", tmp_path)
    assert code == 2 and "exists" in err and "--resume" in err and "--run" in err


def test_resume_without_a_run_is_refused(hexad, tmp_path):
    code, _, err = hexad("train", RECIPE, MODEL, "--run", tmp_path / "new", "--resume")
    assert code == 2 and "no run to resume" in err and not (tmp_path / "new").exists()


def test_resume_with_another_recipe_names_what_differs(hexad, fake_run, tmp_path):
    fake_run(begun)
    assert hexad("train", RECIPE, MODEL, "--run", tmp_path)[0] == 0
    again = ("--run", tmp_path, "--resume")
    code, _, err = hexad("train", RECIPE, MODEL, "run.seed=9", *again)
    assert code == 2 and "run.seed" in err
    assert hexad("train", RECIPE, MODEL, "system.threads=1", *again)[0] == 0


def test_a_users_mistake_found_late_leaves_the_folder_free(hexad, fake_run, tmp_path):
    def missing(recipe, run_dir, **rest):
        raise UserError("there is no model 'nowhere'", where="policy.model", fix="name a folder")

    fake_run(missing)
    code, _, err = hexad("train", RECIPE, "policy.model=nowhere", "--run", tmp_path)
    assert code == 2 and "nowhere" in err and "policy.model" in err
    fake_run(begun)
    assert hexad("train", RECIPE, MODEL, "--run", tmp_path)[0] == 0


def test_our_own_fault_is_code_1_with_the_traceback_in_a_file(hexad, fake_run, tmp_path):
    def broken(recipe, run_dir, **rest):
        raise ContractViolation("the books do not balance")

    fake_run(broken)
    code, out, err = hexad("train", RECIPE, MODEL, "--run", tmp_path)
    assert code == 1 and out == "" and "Traceback" not in err
    assert "do not balance" in err and "crash.txt" in err
    assert "broken" in (tmp_path / "crash.txt").read_text()
    code, out, _ = hexad("train", RECIPE, MODEL, "--run", tmp_path, "--json")
    assert code == 1 and json.loads(out)["error"]["kind"] == "internal"


def test_a_clean_stop_says_how_to_resume(hexad, fake_run, tmp_path):
    def stopped(recipe, run_dir, **rest):
        begun(recipe, run_dir)
        return {"reason": "interrupted"}

    fake_run(stopped)
    code, out, err = hexad("train", RECIPE, MODEL, "--run", tmp_path)
    assert code == 130 and out == ""
    assert f"hexad train {RECIPE} {MODEL} --run {tmp_path} --resume" in err


def test_a_stop_at_once_says_how_to_resume(hexad, fake_run, tmp_path):
    def killed(recipe, run_dir, **rest):
        raise KeyboardInterrupt

    fake_run(killed)
    code, _, err = hexad("train", RECIPE, MODEL, "--run", tmp_path)
    assert code == 130 and "--resume" in err and "Traceback" not in err


def test_training_ends_with_a_summary_and_a_curve(hexad, fake_run, tmp_path):
    seen = {}

    def train(recipe, run_dir, **rest):
        seen.update(rest, recipe=recipe)
        print("a library chatters")
        return begun(recipe, run_dir)

    fake_run(train)
    code, out, _ = hexad("train", RECIPE, MODEL, "--run", tmp_path)
    *_, told, following = out.splitlines()[-10:]
    assert code == 0 and told == "unmeasured  verifier agreement, barrier profile"
    assert following.startswith(f"next        hexad diagnose {tmp_path}; hexad view {tmp_path}; ")
    assert (tmp_path / "curve.png").stat().st_size > 1000
    assert seen["resume"] is False and seen["interrupted"]() is False
    assert load(tmp_path / "recipe.yaml") == seen["recipe"]
    code, out, err = hexad("train", RECIPE, MODEL, "--run", tmp_path, "--resume", "--json")
    document = json.loads(out)
    assert code == 0 and document["reason"] == "budget" and "chatters" in err
    assert document["not_measured"] and document["stages"][0]["method"] == "grpo"
    assert [each["axis"] for each in document["axes"]][:2] == ["feedback", "data"]


def test_a_tracker_that_cannot_be_used_stops_before_anything_is_made(hexad, tmp_path):
    code, _, err = hexad("train", RECIPE, MODEL, "--run", tmp_path / "run", "--track", "tensorbord")
    assert code == 2 and "did you mean tensorboard" in err and not (tmp_path / "run").exists()
    code, _, err = hexad("train", RECIPE, "--run", tmp_path / "run", "--track", "trackio")
    assert code == 2 and "pip install 'hexad[trackio]'" in err


@pytest.mark.parametrize("arguments", [["--split", "secret"], []])
def test_evaluate_refuses_unknown_splits_and_folders(hexad, tmp_path, arguments):
    code, _, err = hexad("evaluate", tmp_path, *arguments)
    assert code == 2 and ("secret" in err or "no run" in err)


def test_evaluate_prints_a_row_or_a_document(hexad, fake_run, tmp_path):
    row = {"step": 3, "split": "hidden", "episodes": 4, "scored": 3, "correct": 2}
    row |= {"success": 2 / 3, "low": 0.2, "high": 0.9, "unscored": 1, "verdicts": {"correct": 2}}
    row |= {"endings": {"terminal": 4}, "faults": {}, "strata": {}}
    row |= {"violations": 0, "unauthorised": 0}

    def measure(folder, split, *, tasks, attempts, which, watcher):
        return {**row, "asked": [str(split), tasks, attempts, which]}

    fake_run(begun, measure)
    hexad("train", RECIPE, MODEL, "--run", tmp_path)
    code, _, err = hexad("evaluate", tmp_path)
    assert code == 2 and "no checkpoint" in err
    (tmp_path / "checkpoints" / "step_3").mkdir(parents=True)
    code, out, _ = hexad("evaluate", tmp_path, "--split", "hidden", "--tasks", 4)
    assert code == 0 and "66.7 %" in out and "hidden tasks were used" in out
    code, out, err = hexad("evaluate", tmp_path, "--json")
    assert json.loads(out)["asked"] == ["selection", None, 1, "last"] and err == ""
    code, out, _ = hexad("evaluate", tmp_path, "--attempts", 4, "--json")
    assert json.loads(out)["asked"] == ["selection", None, 4, "last"]


def test_the_installed_command_exits_with_the_same_codes(tmp_path):
    hexad = str(Path(sys.executable).parent / "hexad")
    done = subprocess.run(
        [hexad, "train", RECIPE, "data.group_size=1", "--json"],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
    )
    assert done.returncode == 2 and "data.group_size" in json.loads(done.stdout)["error"]["what"]
    assert done.stderr == "" and list(tmp_path.iterdir()) == []


def test_the_console_is_silent_with_json():
    assert entry._console(True).quiet and isinstance(entry._console(False), Console)
