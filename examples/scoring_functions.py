# %% [markdown]
"""Comparison of additive and dot-product scores: effect of the keys, and relations that each score can learn.

Run it with `python examples/scoring_functions.py` (ten minutes; with `--quick` seconds, without the training of the
third part). It answers three questions:

1. How do the weights of both scores change with the keys?
2. How are queries and keys of different sizes scored by matrix products alone?
3. When is the sum of two vectors a better score than their dot product?

It prints the results and draws `scoring_keys.png` and `scoring_task.png` to `artifacts/` (`--out FOLDER` for another
folder). docs/scores.md explains the results.

Source of the questions: Zhang, Lipton, Li and Smola, Dive into Deep Learning, section 11.3, exercises.
"""

# %%
import argparse
import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported, or it has no effect

import keras
import numpy as np
from score_tasks import CONTESTANTS, TASKS, Task, build_trained_model, measure_accuracy, measure_call_seconds

from keras_attn import AdditiveAttention, BilinearAttention, DotProductAttention, show_heatmaps

NUM_QUERIES, NUM_KEYS, SIZE = 4, 10, 2
VALID_LENS = np.array([6])
Shares = dict[str, dict[str, list[float]]]  # accuracies by task, contestant and seed

# %% [markdown]
# ## 1. How do the weights of both scores change with the keys?


# %%
def make_keys(seed: int) -> dict[str, np.ndarray]:
    """Return the equal keys of the textbook, and three sets of random keys, (1, 10, 2) each."""
    random = np.random.default_rng(seed).normal(size=(1, NUM_KEYS, SIZE))
    keys = {"ones": np.ones_like(random), "drawn": random, "drawn + 3": random + 3, "drawn x 10": 10 * random}
    return {name: array.astype("float32") for name, array in keys.items()}


def compute_weights(keys: dict[str, np.ndarray], seed: int) -> dict[str, dict[str, np.ndarray]]:
    """Return the weights (4, 10) of both untrained scores, for the same queries and each set of keys."""
    keras.utils.set_random_seed(seed)
    queries = np.random.default_rng(seed + 1).normal(size=(1, NUM_QUERIES, SIZE)).astype("float32")
    layers = {"additive": AdditiveAttention(8), "dot product": DotProductAttention()}
    return {
        name: {
            change: np.asarray(layer(queries, array, array, VALID_LENS, return_attention_scores=True)[1])[0]
            for change, array in keys.items()
        }
        for name, layer in layers.items()
    }


def compare_keys(folder: Path, seed: int = 0) -> dict[str, dict[str, float]]:
    """Answer question 1: distances between the weights of both scores, and from the weights for the drawn keys."""
    weights = compute_weights(make_keys(seed), seed)
    changes = list(weights["additive"])
    additive, product = weights["additive"], weights["dot product"]
    distances = {"between both": {change: _compute_distance(product[change], additive[change]) for change in changes}}
    for name, maps in weights.items():
        distances[f"{name}, from drawn"] = {key: _compute_distance(maps[key], maps["drawn"]) for key in changes}
    print("1. Largest total variation distance between the weights of a query (0: equal, 1: no key in common)")
    rows = [[name, *(f"{distance:.2f}" for distance in row.values())] for name, row in distances.items()]
    _print_table(["keys", *changes], rows)
    figure = show_heatmaps(
        np.stack([np.stack(list(row.values())) for row in weights.values()]), titles=changes, figsize=(10, 4)
    )
    for axis, name in zip(figure.axes[:: len(changes)], weights, strict=False):
        axis.set_ylabel(f"{name}\nQueries")
    figure.savefig(folder / "scoring_keys.png", dpi=110)
    return distances


def _compute_distance(weights: np.ndarray, reference: np.ndarray) -> float:
    """Return the largest total variation distance between rows of weights (Tq, Tk)."""
    return float(np.abs(weights - reference).sum(-1).max() / 2)


# %% [markdown]
# ## 2. How are queries and keys of different sizes scored by matrix products alone?


# %%
def score_different_sizes(seed: int = 0) -> float:
    """Answer question 2: `q^T W k`. Return the largest difference from the product by NumPy."""
    rng = np.random.default_rng(seed)
    queries, keys, values = (rng.normal(size=shape).astype("float32") for shape in ((2, 3, 20), (2, 10, 2), (2, 10, 4)))
    layer = BilinearAttention()
    output = layer(queries, keys, values, np.array([2, 6]))
    scores = np.asarray(layer.score(queries, keys))
    difference = float(np.abs(scores - queries @ np.asarray(layer.W.kernel).T @ keys.swapaxes(1, 2)).max())
    shape = tuple(layer.W.kernel.shape)
    print(f"\n2. BilinearAttention: queries (2, 3, 20) and keys (2, 10, 2) through a kernel of {shape}")
    print(f"scores {scores.shape}, output {tuple(output.shape)}; from NumPy's product: {difference:.1e}")
    return difference


# %% [markdown]
# ## 3. When is the sum of two vectors a better score than their dot product?


# %%
def compare_on_tasks(folder: Path, tasks: tuple[Task, ...], steps: int, seeds: int) -> Shares:
    """Answer question 3: accuracies by task, contestant and seed. Draw the last task."""
    print(f"\n3. Held-out queries whose largest weight is on the right key: mean and range of {seeds} seeds")
    results: Shares = {}
    models: dict[tuple[str, str], Any] = {}
    for task in tasks:
        shares = results.setdefault(task.name, {})
        for name in CONTESTANTS:
            shares[name] = []
            for seed in range(seeds):
                model = models[task.name, name] = build_trained_model(name, task, steps, seed)
                shares[name].append(measure_accuracy(model, task, seed))
    rows = [[task, *(_format_mean_and_range(shares) for shares in row.values())] for task, row in results.items()]
    _print_table(["task", *CONTESTANTS], rows)
    counts = [[task.name, *(str(models[task.name, name].count_params()) for name in CONTESTANTS)] for task in tasks]
    print()
    _print_table(["weights", *CONTESTANTS], counts)
    _draw_task({name: models[tasks[-1].name, name] for name in CONTESTANTS}, folder)
    return results


def _format_mean_and_range(shares: list[float]) -> str:
    return f"{np.mean(shares):.1%} ({min(shares):.0%} to {max(shares):.0%})"


def _draw_task(models: dict[str, Any], folder: Path) -> None:
    """Draw the weights of queries and keys at equidistant points: a perfect score gives a diagonal."""
    coordinates = np.linspace(-1, 1, 41, dtype="float32")
    points = np.stack([coordinates, np.ones_like(coordinates)], -1)[None]
    matrices = np.stack([model.predict_on_batch([points, points])[0] for model in models.values()])
    figure = show_heatmaps(matrices[None] / matrices.max(-1)[None, ..., None], titles=list(models), figsize=(10, 2.8))
    figure.savefig(folder / "scoring_task.png", dpi=110)


def _print_table(header: list[str], rows: list[list[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    for row in [header, *rows]:
        cells = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        print("  ".join([row[0].ljust(widths[0]), *cells]))


# %% [markdown]
# ## All three questions
#
# `main([])` takes ten minutes, `main(["--quick"])` seconds: it omits the training of the third part. The pictures
# are `scoring_keys.png` and `scoring_task.png`.


# %%
def main(argv: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description="Additive and dot-product scores side by side.")
    parser.add_argument("--quick", action="store_true", help="train hardly at all")
    parser.add_argument("--out", type=Path, default=Path("artifacts"), help="the folder to write to")
    args = parser.parse_args(argv)
    args.out.mkdir(parents=True, exist_ok=True)
    results = {"keys": compare_keys(args.out), "sizes": score_different_sizes()}
    tasks, steps, seeds = (TASKS[-1:], 20, 1) if args.quick else (TASKS, 1000, 5)
    results["tasks"] = compare_on_tasks(args.out, tasks, steps, seeds)
    times = {name: measure_call_seconds(name) for name in CONTESTANTS}
    ratios = ", ".join(f"{name} {seconds / times['dot product']:.1f}" for name, seconds in times.items())
    print(f"\ntime of a call as a multiple of the dot product's, 4 x 256 queries and keys of size 32\n{ratios}")
    print(f"\nwritten to {args.out}: scoring_keys.png, scoring_task.png")
    return results


# %%
if __name__ == "__main__":
    # In a notebook the arguments of the process are those of Jupyter.
    main(sys.argv[1:] if Path(sys.argv[0]).name == "scoring_functions.py" else [])
