# %% [markdown]
"""Reads English dates and writes ISO 8601 a character at a time: a decoder with attention, as one file and as two.

Run it with `python examples/translate_step_by_step.py` (`--quick` for hardly any training). It trains Bahdanau's
encoder and decoder and exports them twice: as one ONNX file that gives whole dates, and as an encoder and one step of
the decoder, with a loop around them. It checks that Keras, the one file, the two files and a loop over a step without
`precompute` write the same; it measures what `precompute` saves, and what the one file does, and draws `translate.png`.
All is written to `artifacts/translate` (`--out`).
"""

# %%
import argparse
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported, or it has no effect

import keras
import numpy as np
from date_data import ISO_LENGTH, START, STYLES, Row, decode_iso, make_vocabulary, split_days
from date_report import draw_attention
from step_training import draw_rows, encode_texts, train
from step_translator import Translator, build_translator

from keras_attn import attention_entropy, coverage
from keras_attn_export import export_model

WIDTH = 64
Arrays = dict[str, np.ndarray]

# %% [markdown]
# ## The models
#
# `training` runs the cell over right answers. `model` has the same weights, and a loop of its own around the cell.


# %%
def trained_translator(size: int, seed: int, days: list[Any]) -> Translator:
    keras.utils.set_random_seed(seed)
    translator = build_translator(len(make_vocabulary()) + 2, WIDTH)
    start = time.perf_counter()
    train(translator.training, draw_rows(days, size, seed))
    print(f"{size} dates, trained in {time.perf_counter() - start:.0f} s", flush=True)
    return translator


def export_all(translator: Translator, samples: Arrays, out: Path) -> dict[str, Any]:
    """The decoder as one file and as two, and the step that is there to compare with, as bundles by name."""
    exports = {
        "one_file": partial(export_model, translator.model, sample_inputs=samples),
        "encoder": partial(export_model, translator.encoder, sample_inputs=samples),
        "step": partial(export_model, translator.step),
        "plain_step": partial(export_model, translator.plain_step),
    }
    bundles = {}
    for name, export in exports.items():
        start = time.perf_counter()
        bundles[name] = export(path=out / name, overwrite=True)
        taken = time.perf_counter() - start
        print(f"{name}, exported in {taken:.0f} s: {bundles[name].report.summary()}", flush=True)
    return bundles


# %% [markdown]
# ## The loop
#
# The one file has it inside. Around two files it is this one, which also takes the step that gets the encoded
# characters and not what was precomputed of them.


# %%
def translate(bundles: dict[str, Any], step: str, texts: Arrays) -> Arrays:
    """The likeliest character goes into the next step, with the state that came out: tokens (B, 10), weights."""
    encoded = bundles["encoder"].run(texts)
    there = {**texts, **encoded, "values": encoded["projected_values"]}
    there["token"] = np.full(len(encoded["state"]), START, "int32")
    names, found = [spec["name"] for spec in bundles[step].manifest["inputs"]], []
    for _ in range(ISO_LENGTH):
        out = bundles[step].run({name: there[name] for name in names})
        there |= {"state": out["next_state"], "token": out["logits"].argmax(-1).astype("int32")}
        found.append((there["token"], out["weights"]))
    tokens, weights = zip(*found, strict=True)
    return {"tokens": np.stack(tokens, axis=1), "weights": np.stack(weights, axis=1)}


# %% [markdown]
# ## The comparison


# %%
def compare(translator: Translator, bundles: dict[str, Any], rows: list[Row]) -> tuple[Arrays, dict[str, float]]:
    """What the one file writes, and how much of it is exact, and equal to what the others write."""
    texts = encode_texts(rows)
    found = bundles["one_file"].run(texts)
    others = {
        "Keras": translator.model.predict_on_batch(texts),
        "two files": translate(bundles, "step", texts),
        "no precompute": translate(bundles, "plain_step", texts),
    }
    exact = float(np.mean([text == row.iso for text, row in zip(decode_iso(found["tokens"]), rows, strict=True)]))
    print(f"{len(rows)} held-out dates, exact: {exact:.1%}")
    results = {"exact": exact, "dates": len(rows)}
    for name, other in others.items():
        results[f"{name}, equal"] = equal = int((other["tokens"] == found["tokens"]).all(axis=1).sum())
        said = f"one file against {name}: {equal} answers equal"
        if "weights" in other:
            results[f"{name}, gap"] = gap = float(np.abs(other["weights"] - found["weights"]).max())
            said += f", largest difference of a weight {gap:.1e}"
        print(said)
    return found, results


def show(rows: list[Row], found: Arrays, path: Path) -> None:
    """What the attention did: how wide each step looks, what of a text it leaves out, and a picture."""
    answers, weights = decode_iso(found["tokens"]), found["weights"]
    effective = np.exp(np.asarray(attention_entropy(weights)))  # n weights alike have entropy log n
    print(f"a step looks at {effective.mean():.1f} characters in the mean; a dot stands for one hardly ever seen:")
    counts = np.asarray(coverage(weights))
    for row, answer, count in list(zip(rows, answers, counts, strict=True))[: 2 * len(STYLES)]:
        seen = "".join(c if n >= 0.2 else "." for c, n in zip(row.text, count, strict=False))
        print(f"  {answer}  {row.text:32}{seen}")
    draw_attention(rows[: len(STYLES)], answers, weights[: len(STYLES)], path)


# %% [markdown]
# ## What it costs


# %%
def fastest(functions: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """The milliseconds of the fastest call of each, in turns."""
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(repeats):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            times[name].append(1000 * (time.perf_counter() - start))
    return {name: min(each) for name, each in times.items()}


def measure_steps(bundles: dict[str, Any], batch: int, length: int, repeats: int) -> dict[str, float]:
    """The milliseconds of a step with and without precomputed keys, on drawn inputs."""
    rng = np.random.default_rng(0)
    sizes = {"state": (WIDTH,), "projected_keys": (length, WIDTH)}
    sizes |= dict.fromkeys(("values", "projected_values"), (length, 2 * WIDTH))
    drawn = {name: rng.normal(size=(batch, *size)).astype("float32") for name, size in sizes.items()}
    drawn |= {"token": np.zeros(batch, "int32"), "valid_lens": np.full(batch, length, "int32")}
    functions = {}
    for name in ("step", "plain_step"):
        inputs = {spec["name"]: drawn[spec["name"]] for spec in bundles[name].manifest["inputs"]}
        functions[name] = partial(bundles[name].session().run, None, inputs)
    return fastest(functions, repeats)


def measure_answers(bundles: dict[str, Any], rows: list[Row], repeats: int) -> dict[str, float]:
    """The milliseconds of whole answers from the one file and from two in a loop."""
    texts = encode_texts(rows)
    functions = {"one file": partial(bundles["one_file"].run, texts)}
    functions["two files"] = partial(translate, bundles, "step", texts)
    return fastest(functions, repeats)


def measure(bundles: dict[str, Any], rows: list[Row], repeats: int) -> dict[str, float]:
    """Prints what everything costs; returns it as shares."""
    results = {}
    print("time of a step with precomputed keys, as a share of the time without:")
    for batch, length in ((1, 30), (1, 300), (32, 30), (32, 300)):
        taken = measure_steps(bundles, batch, length, repeats)
        fast, slow = taken["step"], taken["plain_step"]
        results[f"share, batch {batch}, length {length}"] = fast / slow
        print(f"  batch {batch:2}, {length:3} characters: {fast / slow:.2f} ({fast:.2f} of {slow:.2f} ms)")
    print("time of whole answers from one file, as a share of the time from two:")
    for batch in (1, 32):
        taken = measure_answers(bundles, rows[:batch], repeats)
        one, two = taken["one file"], taken["two files"]
        results[f"share of two files, batch {batch}"] = one / two
        print(f"  batch {batch:2}: {one / two:.2f} ({one:.2f} of {two:.2f} ms)")
    return results


# %% [markdown]
# ## All of it
#
# `main([])` trains on 100,000 dates; `main(["--quick"])` hardly trains. The picture is `translate.png`.


# %%
def main(argv: list[str] | None = None) -> dict[str, float]:
    parser = argparse.ArgumentParser(description="Decode with attention, as one ONNX file and step by step.")
    parser.add_argument("--quick", action="store_true", help="train hardly at all")
    parser.add_argument("--seed", type=int, default=0, help="of the dates and the weights")
    parser.add_argument("--out", type=Path, default=Path("artifacts/translate"), help="the folder to write to")
    args = parser.parse_args(argv)
    training_days, held_out_days = split_days(args.seed)
    rows = draw_rows(held_out_days, 100 if args.quick else 2000, args.seed + 1)
    translator = trained_translator(1000 if args.quick else 100_000, args.seed, training_days)
    # The proof tries lengths of that of its samples, and twice it.
    shortest = sorted(rows, key=lambda row: len(row.text))[: len(STYLES)]
    bundles = export_all(translator, encode_texts(shortest), args.out)
    found, results = compare(translator, bundles, rows)
    show(rows, found, args.out / "translate.png")
    results |= measure(bundles, rows, repeats=5 if args.quick else 300)
    print(f"\nwritten to {args.out}: {', '.join(bundles)} (bundles), translate.png")
    return results


# %%
if __name__ == "__main__":
    # Run as a notebook it has no arguments: those of the process are Jupyter's.
    main(sys.argv[1:] if Path(sys.argv[0]).name == "translate_step_by_step.py" else [])
