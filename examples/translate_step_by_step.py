# %% [markdown]
"""Reads English dates and writes ISO 8601 a character at a time, with what depends on the text alone computed once.

Run it with `python examples/translate_step_by_step.py` (`--quick` for hardly any training). It trains an encoder and a
decoder with additive attention and exports them as two ONNX graphs: the encoder, which also gives
`precompute(keys)`, and one step of the decoder, which takes that. A loop outside of both carries the state. It checks
that onnxruntime and Keras write the same, step by step, and that a step without `precompute` does too; it measures
what a step of each costs, and draws `translate.png`. All is written to `artifacts/translate` (`--out`).
"""

# %%
import argparse
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported, or it has no effect

import keras
import numpy as np
from date_data import ISO_LENGTH, STYLES, Row, decode_iso, make_vocabulary, split_days
from date_report import draw_attention
from step_models import START, Translator, encoder_model, step_model
from step_training import draw_rows, encode_texts, train

from keras_attn import attention_entropy, coverage
from keras_attn_export import export_model

WIDTH = 64
Arrays = dict[str, np.ndarray]
Run = Callable[[Arrays], Arrays]

# %% [markdown]
# ## The loop
#
# It is the same for Keras and for onnxruntime: both are given as functions of arrays by name.


# %%
@dataclass(frozen=True)
class Translation:
    """Logits (B, 10, 11), and weights (B, 10, T)."""

    logits: np.ndarray
    weights: np.ndarray

    @property
    def texts(self) -> list[str]:
        return decode_iso(self.logits)


def translate(encode: Run, step: Run, texts: Arrays, *, precomputed: bool = True) -> Translation:
    """The decoding loop: the likeliest character goes into the next step, with the state that came out."""
    encoded = encode(texts)
    constant = {"values": encoded["values"], "valid_lens": texts["valid_lens"]}
    if precomputed:
        constant["projected_keys"] = encoded["projected_keys"]
    state, token = encoded["state"], np.full(len(encoded["state"]), START, "int32")
    steps = []
    for _ in range(ISO_LENGTH):
        out = step({**constant, "token": token, "state": state})
        state, token = out["next_state"], out["logits"].argmax(-1).astype("int32")
        steps.append((out["logits"], out["weights"]))
    logits, weights = (np.stack(x, axis=1) for x in zip(*steps, strict=True))
    return Translation(logits, weights)


# %%
def measure_steps(bundles: dict[str, Any], batch: int, length: int, repeats: int) -> tuple[float, float]:
    """The milliseconds of the fastest step with and without precomputed keys, on drawn inputs, in turns."""
    rng = np.random.default_rng(0)
    sizes = {"state": (WIDTH,), "values": (length, 2 * WIDTH), "projected_keys": (length, WIDTH)}
    inputs = {name: rng.normal(size=(batch, *size)).astype("float32") for name, size in sizes.items()}
    inputs |= {"token": np.zeros(batch, "int32"), "valid_lens": np.full(batch, length, "int32")}
    plain = {name: x for name, x in inputs.items() if name != "projected_keys"}
    sessions = {"step": (bundles["step"].session(), inputs), "plain_step": (bundles["plain_step"].session(), plain)}
    times: dict[str, list[float]] = {name: [] for name in sessions}
    for _ in range(repeats):
        for name, (session, x) in sessions.items():
            start = time.perf_counter()
            session.run(None, x)
            times[name].append(1000 * (time.perf_counter() - start))
    return min(times["step"]), min(times["plain_step"])


# %% [markdown]
# ## The models
#
# The encoder runs once for a text. A step runs for each character of the answer, from precomputed keys or, to compare
# with, from the encoded values alone.


# %%
def train_and_export(size: int, seed: int, days: list[Any], out: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The three models that decode, and their bundles, by name."""
    keras.utils.set_random_seed(seed)
    start = time.perf_counter()
    translator = Translator(len(make_vocabulary()) + 2, WIDTH)
    train(translator, draw_rows(days, size, seed))
    print(f"{size} dates, trained in {time.perf_counter() - start:.0f} s")
    models = {"encoder": encoder_model(translator)}
    models |= {name: step_model(translator, precomputed=name == "step") for name in ("step", "plain_step")}
    samples = {"encoder": encode_texts(draw_rows(days, 5, seed))}  # the lengths that a GRU's mask is made of
    bundles = {
        name: export_model(model, out / name, sample_inputs=samples.get(name), overwrite=True)
        for name, model in models.items()
    }
    for name, bundle in bundles.items():
        print(f"{name}: {bundle.report.summary()}")
    return models, bundles


# %% [markdown]
# ## The comparison


# %%
def compare(models: dict[str, Any], bundles: dict[str, Any], rows: list[Row]) -> tuple[Translation, dict[str, float]]:
    """Translates in onnxruntime, in Keras, and with the step that projects the keys anew each time."""
    texts = encode_texts(rows)
    onnx = translate(bundles["encoder"].run, bundles["step"].run, texts)
    others = {
        "Keras": translate(models["encoder"].predict_on_batch, models["step"].predict_on_batch, texts),
        "no precompute": translate(bundles["encoder"].run, bundles["plain_step"].run, texts, precomputed=False),
    }
    exact = float(np.mean([answer == row.iso for answer, row in zip(onnx.texts, rows, strict=True)]))
    print(f"{len(rows)} held-out dates, exact: {exact:.1%}")
    results = {"exact": exact, "dates": len(rows)}
    for name, other in others.items():
        equal = sum(a == b for a, b in zip(onnx.texts, other.texts, strict=True))
        gap = float(np.abs(onnx.logits - other.logits).max())
        results |= {f"{name}, equal": equal, f"{name}, gap": gap}
        print(f"onnxruntime against {name}: {equal} answers equal, largest difference of a logit {gap:.1e}")
    return onnx, results


def show(rows: list[Row], found: Translation, path: Path) -> None:
    """What the attention did: how wide each step looks, what of a text it leaves out, and a picture."""
    effective = np.exp(np.asarray(attention_entropy(found.weights)))  # n weights alike have entropy log n
    print(f"a step looks at {effective.mean():.1f} characters in the mean; a dot stands for one hardly ever seen:")
    counts = np.asarray(coverage(found.weights))
    for row, answer, count in list(zip(rows, found.texts, counts, strict=True))[: 2 * len(STYLES)]:
        seen = "".join(c if n >= 0.2 else "." for c, n in zip(row.text, count, strict=False))
        print(f"  {answer}  {row.text:32}{seen}")
    draw_attention(rows[: len(STYLES)], found.texts, found.weights[: len(STYLES)], path)


# %% [markdown]
# ## All of it
#
# `main([])` trains on 100,000 dates; `main(["--quick"])` hardly trains. The picture is `translate.png`.


# %%
def main(argv: list[str] | None = None) -> dict[str, float]:
    parser = argparse.ArgumentParser(description="Decode step by step with precomputed keys, in onnxruntime.")
    parser.add_argument("--quick", action="store_true", help="train hardly at all")
    parser.add_argument("--seed", type=int, default=0, help="of the dates and the weights")
    parser.add_argument("--out", type=Path, default=Path("artifacts/translate"), help="the folder to write to")
    args = parser.parse_args(argv)
    training_days, held_out_days = split_days(args.seed)
    rows = draw_rows(held_out_days, 100 if args.quick else 2000, args.seed + 1)
    models, bundles = train_and_export(1000 if args.quick else 100_000, args.seed, training_days, args.out)
    found, results = compare(models, bundles, rows)
    show(rows, found, args.out / "translate.png")
    print("time of a step with precomputed keys, as a share of the time without:")
    for batch, length in ((1, 30), (1, 300), (32, 30), (32, 300)):
        fast, slow = measure_steps(bundles, batch, length, repeats=5 if args.quick else 300)
        results[f"share, batch {batch}, length {length}"] = fast / slow
        print(f"  batch {batch:2}, {length:3} characters: {fast / slow:.2f} ({fast:.2f} of {slow:.2f} ms)")
    print(f"\nwritten to {args.out}: encoder, step and plain_step (bundles), translate.png")
    return results


# %%
if __name__ == "__main__":
    # Run as a notebook it has no arguments: those of the process are Jupyter's.
    main(sys.argv[1:] if Path(sys.argv[0]).name == "translate_step_by_step.py" else [])
