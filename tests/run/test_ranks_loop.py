"""The real loop on two gloo processes learns what one process learns."""

import os
import subprocess
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file
from short_run import HERE, RECIPE

PROGRAM = """
import sys
from pathlib import Path
from hexad.learner.ranks import Gloo, Single
from hexad.recipe.load import load
from hexad.run import compose

recipe, folder, rank, size, address = sys.argv[1:]
folder = Path(folder)
if rank == "0":
    folder.mkdir()
ranks = Gloo(int(rank), int(size), address) if size != "1" else Single()
with compose(load(recipe), folder, ranks=ranks) as loop:
    print(loop.run())
ranks.close()
"""


def run(folder: Path, size: int) -> dict[str, torch.Tensor]:
    """The final weights of a float64 run on ``size`` processes."""
    recipe = folder / "short.yaml"
    text = RECIPE.replace("budget: {episodes: 72}", "budget: {episodes: 36}")
    recipe.write_text(text.replace("system: {", "system: {dtype: float64, "))
    paths = os.pathsep.join([str(HERE), str(HERE.parent)])
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths}
    address = f"file://{folder / f'meet{size}'}"
    processes = [
        subprocess.Popen(
            [
                *(sys.executable, "-c", PROGRAM, str(recipe), str(folder / f"run{size}")),
                *(str(rank), str(size), address),
            ],
            env=variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(size)
    ]
    outputs = [process.communicate(timeout=240)[0] for process in processes]
    assert all(process.returncode == 0 for process in processes), "\n".join(outputs)
    return load_file(folder / f"run{size}" / "checkpoints/step_3/policy/model.safetensors")


def test_two_ranks_end_with_the_weights_of_one(tmp_path):
    one, two = run(tmp_path, 1), run(tmp_path, 2)
    assert one.keys() == two.keys()
    for name, weights in one.items():
        assert weights.dtype == torch.float64
        torch.testing.assert_close(two[name], weights, rtol=0, atol=1e-9, msg=name)
    moved = max(float(w.abs().max()) for w in one.values())
    assert moved > 0
