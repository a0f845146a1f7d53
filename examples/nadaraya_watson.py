# %% [markdown]
"""Nadaraya-Watson regression as attention: points are queries and keys, measurements are values.

Run it with `python examples/nadaraya_watson.py`. It estimates `y = 2 sin x + x^0.8` from noisy measurements with three
bandwidths, one of them learned, prints the errors, and draws estimates and weights to `artifacts/nadaraya_watson.png`
(`--out FOLDER` for another folder). It also shows when Gaussian and dot-product attention are equal.

Source: Zhang, Lipton, Li and Smola, Dive into Deep Learning, section 11.2, and 11.3 for the last part.
"""

# %%
import argparse
import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported, or it has no effect

import keras
import numpy as np
from matplotlib.figure import Figure

from keras_attn import DotProductAttention, GaussianAttention, attention_entropy

NOISE, TRAIN_SIZE, TEST_SIZE = 0.5, 50, 200
NARROW, WIDE = 0.05, 1.0

# %% [markdown]
# ## The measurements


# %%
def compute_truth(x: np.ndarray) -> np.ndarray:
    """Return the values of the true function at points of any shape."""
    return 2 * np.sin(x) + x**0.8


def measure(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return sorted points in [0, 5), (50,), and noisy measurements at these points, (50,)."""
    rng = np.random.default_rng(seed)
    x = np.sort(5 * rng.random(TRAIN_SIZE))
    return x, compute_truth(x) + NOISE * rng.normal(size=TRAIN_SIZE)


def to_column(numbers: np.ndarray) -> np.ndarray:
    """Reshape numbers (T,) to the vectors of one example, float32 (1, T, 1)."""
    return numbers[None, :, None].astype("float32")


# %% [markdown]
# ## The estimate
#
# An estimate is a weighted mean of the measurements, with larger weights for closer points: attention with Gaussian
# scores. The bandwidth is the scale of distances. It is learned by leave-one-out cross-validation.


# %%
def estimate(x: np.ndarray, x_train: np.ndarray, y_train: np.ndarray, bandwidth: float) -> tuple:
    """Return the estimates at points `x` (Tq,), and the weights (Tq, Tk)."""
    layer = GaussianAttention(bandwidth)
    y, weights = layer(to_column(x), to_column(x_train), to_column(y_train), return_attention_scores=True)
    return y[0, :, 0], weights[0]


def learn_bandwidth(x_train: np.ndarray, y_train: np.ndarray, steps: int) -> float:
    """Learn the bandwidth that predicts each measurement best from the other measurements (leave-one-out)."""
    size = len(x_train)
    points, values = keras.Input((size, 1), name="points"), keras.Input((size, 1), name="measured")
    layer = GaussianAttention(WIDE)
    mask = ~np.eye(size, dtype=bool)  # masks the measurement at the query's own point
    model = keras.Model([points, values], layer(points, points, values, attention_mask=mask))
    model.compile(keras.optimizers.Adam(0.05), "mse")
    x, y = to_column(x_train), to_column(y_train)
    for _ in range(steps):
        model.train_on_batch({"points": x, "measured": y}, y)
    return float(np.exp(layer.log_bandwidth))


# %% [markdown]
# ## Distances and dot products


# %%
def compare_with_dot_products(norms: np.ndarray, bandwidth: float, seed: int = 0) -> float:
    """Return the largest difference between weights by distances and by dot products with scale `1 / bandwidth^2`.

    `-||q - k||^2 / 2 = q.k - ||q||^2 / 2 - ||k||^2 / 2`. The softmax over the keys cancels terms that are equal for
    all keys: the second term always, and the third if all keys have the same norm.
    """
    rng = np.random.default_rng(seed)
    size = 5
    queries = rng.normal(size=(1, 7, size))
    keys = rng.normal(size=(1, len(norms), size))
    keys *= norms[None, :, None] / np.linalg.norm(keys, axis=-1, keepdims=True)
    layers = GaussianAttention(bandwidth), DotProductAttention(scale=bandwidth**-2)
    gaussian, product = (np.asarray(layer(queries, keys, keys, return_attention_scores=True)[1]) for layer in layers)
    return float(np.abs(gaussian - product).max())


# %% [markdown]
# ## The comparison


# %%
def draw_estimates(x: np.ndarray, x_train: np.ndarray, y_train: np.ndarray, fits: dict, path: Path) -> None:
    """Draw the estimate of each bandwidth, with the weights below."""
    figure = Figure(figsize=(10, 5.6), layout="constrained")
    axes = figure.subplots(2, len(fits), sharex="row", sharey="row", squeeze=False)
    for (curve_axis, map_axis), (title, (y, weights)) in zip(axes.T, fits.items(), strict=True):
        curve_axis.plot(x_train, y_train, "o", color="0.65", markersize=4, label="measured")
        curve_axis.plot(x, compute_truth(x), "--", color="0.3", label="truth")
        curve_axis.plot(x, y, color="tab:red", label="estimate")
        curve_axis.set(title=title, xlabel="x")
        image = map_axis.imshow(weights, cmap="Reds", vmin=0, vmax=0.5, aspect="auto", extent=(0, TRAIN_SIZE, 5, 0))
        map_axis.set(xlabel="measurements, in order of x")
    axes[0, 0].legend(fontsize=8)
    axes[0, 0].set_ylabel("y")
    axes[1, 0].set_ylabel("x of the estimate")
    figure.colorbar(image, ax=axes[1], label="weight", extend="max")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def main(argv: list[str] | None = None) -> dict[str, float]:
    parser = argparse.ArgumentParser(description="Nadaraya-Watson regression with GaussianAttention.")
    parser.add_argument("--quick", action="store_true", help="learn the bandwidth in few steps")
    parser.add_argument("--seed", type=int, default=0, help="of the measurements")
    parser.add_argument("--out", type=Path, default=Path("artifacts"), help="the folder to write to")
    args = parser.parse_args(argv)

    x_train, y_train = measure(args.seed)
    x = np.linspace(0, 5, TEST_SIZE, endpoint=False)
    learned = learn_bandwidth(x_train, y_train, steps=40 if args.quick else 200)
    fits = {
        f"bandwidth {bandwidth:.2f}{note}": tuple(map(np.asarray, estimate(x, x_train, y_train, bandwidth)))
        for bandwidth, note in ((NARROW, ""), (learned, ", learned"), (WIDE, ""))
    }
    print(f"{TRAIN_SIZE} measurements of 2 sin x + x^0.8 with noise {NOISE}, estimated at {TEST_SIZE} points")
    print("                          mean squared error   measurements in a mean")
    errors = {"mean of all": float(np.mean((compute_truth(x) - y_train.mean()) ** 2))}
    print(f"{'mean of all':26}{errors['mean of all']:10.3f}{TRAIN_SIZE:22.1f}")
    for name, (y, weights) in fits.items():
        errors[name] = float(np.mean((compute_truth(x) - y) ** 2))
        effective = float(np.exp(np.asarray(attention_entropy(weights))).mean())  # n equal weights have entropy log n
        print(f"{name:26}{errors[name]:10.3f}{effective:22.1f}")

    equal_norms = compare_with_dot_products(np.full(6, 3.0), bandwidth=1.5)
    different_norms = compare_with_dot_products(np.linspace(1.0, 5.0, 6), bandwidth=1.5)
    print("\nLargest difference between the weights of GaussianAttention(h) and DotProductAttention(scale=1/h^2)")
    print(f"keys of equal norm: {equal_norms:.1e}; keys of norms from 1 to 5: {different_norms:.2f}")

    draw_estimates(x, x_train, y_train, fits, args.out / "nadaraya_watson.png")
    print(f"\nwritten to {args.out}: nadaraya_watson.png")
    return {**errors, "learned": learned, "equal norms": equal_norms, "different norms": different_norms}


# %% [markdown]
# The whole run takes a few seconds. `nadaraya_watson.png` shows estimates and weights.

# %%
if __name__ == "__main__":
    # In a notebook the arguments of the process are those of Jupyter.
    main(sys.argv[1:] if Path(sys.argv[0]).name == "nadaraya_watson.py" else [])
