"""Convert dates in 37 languages to ISO 8601: train a model, export it, and compare the file with Keras.

Run it with `scripts/demo` or `python examples/date_normaliser.py`. It writes to `artifacts/`:

- `dates.keras`, the trained model; `dates/`, the exported bundle; `dates.png`, the attention weights of some dates;
- `dates.html`, a report of the bundle and its check. If npm has installed onnxruntime-web, as `scripts/demo` does, the
  page also has a field to type dates into;
- `dates_inputs.npz`, a few encoded dates for `keras-attn run artifacts/dates --inputs artifacts/dates_inputs.npz
  --outputs artifacts/dates_outputs.npz`, whose answers `--decode artifacts/dates_outputs.npz` prints as text.

The exit code is 1 if fewer than 98% of the held-out dates are exact, with or without noise, or if an answer of
onnxruntime differs from Keras.
"""

import argparse
import datetime
import os
import platform
import random
import sys
import time
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from date_data import (
    ISO_CHARACTERS,
    LOCALES,
    Row,
    Style,
    decode_iso,
    encode_iso,
    encode_rows,
    make_rows,
    make_vocabulary,
    split_days,
    write_date,
)
from date_noise import add_noise
from date_report import compute_accuracies, draw_attention, get_language_name, print_accuracies

MIN_ACCURACY = 0.98
TRAINING_NOISE, TRAINING_TYPOS = 0.9, 0.3  # typos are hard: three times the share of the held-out dates
BATCH_SIZE, SEED_OFFSET = 256, 1000
# `EXAMPLES` are printed. `DRAWN_EXAMPLES`, in scripts of matplotlib's default font, are also drawn.
DRAWN_EXAMPLES: list[tuple[str, Style]] = [
    ("en_US", "full"),
    ("el", "long"),
    ("uk", "full"),
    ("es", "long"),
    ("hu", "full"),
    ("ko", "short"),
]
EXAMPLES: list[tuple[str, Style]] = [*DRAWN_EXAMPLES, ("ja", "full"), ("hi", "long"), ("ar_EG", "full"), ("vi", "long")]


@dataclass(frozen=True)
class Size:
    """Number of training and held-out dates per locale and style."""

    train: int
    held_out: int


FULL, QUICK = Size(train=2000, held_out=50), Size(train=20, held_out=2)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Train a date normaliser, export it, compare the export with Keras.")
    parser.add_argument("--quick", action="store_true", help="train with few dates, and do not check the accuracy")
    parser.add_argument("--seed", type=int, default=0, help="of the split, the dates, the noise and the weights")
    parser.add_argument("--out", type=Path, default=Path("artifacts"), help="the folder to write to")
    parser.add_argument("--decode", type=Path, metavar="OUTPUTS", help="only print the dates in this .npz file")
    args = parser.parse_args(argv)
    if args.decode:
        print("\n".join(decode_iso(np.load(args.decode)["tokens"])))
        return 0
    # A private module, for tidy output only: omit it in your own script.
    from keras_attn_export._cli.native_stderr import silence_native_stderr

    with silence_native_stderr():  # messages of TensorFlow, in this process and in processes of the export
        problems = run_demo(QUICK if args.quick else FULL, args.seed, args.out)
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


def run_demo(size: Size, seed: int, out: Path) -> list[str]:
    """Train, measure, export, compare and draw; return a sentence for each problem."""
    training_days, held_out_days = split_days(seed)
    vocabulary = make_vocabulary()
    out.mkdir(parents=True, exist_ok=True)
    model = train_model(size, seed, training_days, vocabulary)
    model.save(out / "dates.keras")

    held_out = [make_rows(held_out_days, size.held_out, seed=seed + SEED_OFFSET, noise=noise) for noise in (0, 1)]
    inputs = [encode_rows(rows, vocabulary) for rows in held_out]
    keras_answers = [decode_iso(model.predict(arrays, batch_size=512, verbose=0)["tokens"]) for arrays in inputs]
    accuracies = [compute_accuracies(rows, answers) for rows, answers in zip(held_out, keras_answers, strict=True)]
    print_accuracies(*accuracies)
    means = [float(np.mean(list(by_locale.values()))) for by_locale in accuracies]
    num_changed = sum(clean.text != noisy.text for clean, noisy in zip(*held_out, strict=True))
    print(f"\n{len(held_out[0])} held-out dates, exact: {means[0]:.2%} clean, {means[1]:.2%} noisy", end=" ")
    print(f"({num_changed} of them changed by the noise)")

    examples = make_examples(held_out_days, seed)
    encoded = encode_rows(examples, vocabulary)
    bundle = export(model, out / "dates", encoded)
    onnx_answers = [run_in_batches(bundle, arrays) for arrays in inputs]
    pairs = list(zip(chain(*keras_answers), chain(*onnx_answers), strict=True))
    num_equal, total = sum(keras_answer == answer for keras_answer, answer in pairs), len(pairs)
    print(f"onnxruntime: {num_equal} of {total} answers equal to Keras's")

    show_examples(bundle, examples, encoded, out)
    print(write_page(bundle, vocabulary, out / "dates.html"))
    if size is QUICK:
        print("This was a quick run: its accuracy is not checked.")
    return list_problems(means, num_equal, total, 0.0 if size is QUICK else MIN_ACCURACY)


def list_problems(means: list[float], num_equal: int, total: int, bar: float) -> list[str]:
    """Return a sentence for each problem: low accuracy, or answers of onnxruntime that differ from Keras."""
    problems = []
    if min(means) < bar:
        problems.append(f"The accuracy is below {bar:.0%}: {means[0]:.2%} clean, {means[1]:.2%} noisy.")
    if num_equal < total:
        problems.append(f"{total - num_equal} of {total} answers of onnxruntime differ from Keras's.")
    return problems


def train_model(size: Size, seed: int, days: list[datetime.date], vocabulary: str) -> Any:
    """Train, and return the model that decodes; print the seed, the versions and the time."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported, or it has no effect
    import keras
    from date_model import build_decoder
    from date_training import make_batches, train

    print(f"seed {seed}, Python {platform.python_version()}, Keras {keras.__version__}, {os.cpu_count()} cores")
    keras.utils.set_random_seed(seed)
    start = time.perf_counter()
    rows = make_rows(days, size.train, seed=seed, noise=TRAINING_NOISE, typo_share=TRAINING_TYPOS)
    batches = make_batches(encode_rows(rows, vocabulary), encode_iso(rows), BATCH_SIZE, seed)
    print(f"{len(rows)} training dates written in {time.perf_counter() - start:.0f} s", flush=True)
    start = time.perf_counter()
    decoder = build_decoder(len(vocabulary) + 2)
    train(decoder.training, batches, verbose=1 if sys.stdout.isatty() else 2)
    count, seconds = decoder.training.count_params(), time.perf_counter() - start
    print(f"{count} parameters trained in {seconds:.0f} s\n", flush=True)
    return decoder.model


def export(model: Any, path: Path, samples: dict[str, np.ndarray]) -> Any:
    """Export the model, and verify the files of the bundle again."""
    from keras_attn_export import export_model, verify_bundle

    bundle = export_model(model, path, sample_inputs=samples, overwrite=True)
    print(f"export: {bundle.report.summary()}")
    print(f"verify: {verify_bundle(path).summary()}")
    return bundle


def run_in_batches(bundle: Any, inputs: dict[str, np.ndarray], batch_size: int = 512) -> list[str]:
    """Return the answers of onnxruntime."""
    answers = []
    for start in range(0, len(inputs["locale"]), batch_size):
        batch = {name: array[start : start + batch_size] for name, array in inputs.items()}
        answers += decode_iso(bundle.run(batch)["tokens"])
    return answers


def make_examples(days: list[datetime.date], seed: int) -> list[Row]:
    """Return a held-out date with noise for each of `EXAMPLES`."""
    rng = random.Random(seed)
    examples = zip(EXAMPLES, rng.sample(days, len(EXAMPLES)), strict=True)
    return [
        Row(add_noise(write_date(day, locale, style), locale, rng), locale, style, day.isoformat())
        for (locale, style), day in examples
    ]


def show_examples(bundle: Any, rows: list[Row], encoded: dict[str, np.ndarray], out: Path) -> None:
    """Print the examples, write them for `keras-attn run`, and draw the attention weights of the ONNX model."""
    np.savez(out / "dates_inputs.npz", **encoded)
    outputs = bundle.run(encoded)
    answers = decode_iso(outputs["tokens"])
    num_drawn = len(DRAWN_EXAMPLES)
    draw_attention(rows[:num_drawn], answers[:num_drawn], outputs["attention"][:num_drawn], out / "dates.png")
    print()
    for row, answer in zip(rows, answers, strict=True):
        print(f"{answer}  {row.locale:6}{row.text}")
    print(f"\nwritten to {out}: dates.keras, dates (the bundle), dates_inputs.npz, dates.png")


def write_page(bundle: Any, vocabulary: str, page: Path) -> str:
    """Write the report of the bundle, live if onnxruntime-web is installed; return a sentence about it."""
    from keras_attn_export import ExportError

    labels = {
        "characters": ["", "<unk>", *vocabulary],  # ids 0 and 1, see `encode`
        "locale": [get_language_name(locale) for locale in LOCALES],
        "tokens": ISO_CHARACTERS,
    }
    try:
        bundle.write_report(page, labels=labels, live=True)
    except ExportError as error:
        bundle.write_report(page, labels=labels)
        return f"{page}: its report. To type dates into it: {error}"
    return f"{page}: open it to see the check replayed in a browser, and to type dates"


if __name__ == "__main__":
    sys.exit(main())
