"""Examples with `--quick`, run in this process: their results, pictures and statements."""

import importlib
import sys
from pathlib import Path

import pytest
from matplotlib.image import imread

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
nadaraya_watson, scoring_functions = map(importlib.import_module, ("nadaraya_watson", "scoring_functions"))
score_tasks = importlib.import_module("score_tasks")

SEED = 7


def is_picture(path):
    """Return True if a file is a picture of more than one colour."""
    return imread(path)[..., :3].std() > 0.01


@pytest.mark.slow
def test_nadaraya_watson_runs(tmp_path):
    results = nadaraya_watson.main(["--quick", "--out", str(tmp_path)])
    errors = [error for name, error in results.items() if name.startswith("bandwidth")]
    assert len(errors) == 3
    assert errors[1] < min(errors[0], errors[2]) < results["mean of all"]
    assert is_picture(tmp_path / "nadaraya_watson.png")


@pytest.mark.slow
def test_scoring_functions_runs_and_its_statements_hold(tmp_path):
    results = scoring_functions.main(["--quick", "--out", str(tmp_path)])
    distances = results["keys"]
    assert distances["between both"]["ones"] < 1e-6
    assert distances["between both"]["drawn"] > 0.05
    # q.(k + c) = q.k + q.c, and q.c is constant over keys, so the softmax removes it. A tanh is not linear.
    assert distances["dot product, from drawn"]["drawn + 3"] < 1e-5
    assert distances["additive, from drawn"]["drawn + 3"] > 0.05
    assert results["sizes"] < 1e-5
    assert list(results["tasks"]) == [score_tasks.TASKS[-1].name]
    assert is_picture(tmp_path / "scoring_keys.png")
    assert is_picture(tmp_path / "scoring_task.png")


@pytest.mark.slow
def test_additive_scores_find_the_nearest_number_and_products_cannot():
    task = next(task for task in score_tasks.TASKS if task.name == "nearest number, (x, 1)")
    shares = {
        name: score_tasks.measure_accuracy(
            score_tasks.build_trained_model(name, task, steps=300, seed=SEED), task, SEED
        )
        for name in ("additive", "dot product")
    }
    assert shares["additive"] > 0.6
    assert shares["dot product"] < 0.4
