# %% [markdown]
"""Spells numbers in sixteen languages and reads them back: a Transformer decoder with its loop and cache, in one file.

Run it with `python examples/spell_numbers.py` (`--quick` for hardly any training). It trains a decoder with rotary
positions and grouped heads, joins its prompt's pass and its step with `keras_attn.decoding.greedy`, and exports that as
one ONNX file: prompts go in, whole answers come out. It prints how many answers are exact for numbers that it was not
trained on, and checks that onnxruntime and Keras give the same, which is what one pass without a cache says. The bundle
is written to `artifacts/numbers` (`--out`).
"""

# %%
import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported, or it has no effect

import keras
import numpy as np
from babel import Locale
from number_data import (
    DIRECTIONS,
    LANGUAGES,
    Arrays,
    Row,
    decode_answers,
    encode_prompts,
    join,
    make_rows,
    split_numbers,
)
from number_model import Speller, answering_model, training_model
from number_training import train
from rich import print as rich_print
from rich.table import Table

from keras_attn_export import export_model

BATCH = 256

# %% [markdown]
# ## How much of it
#
# A quick run shows that all works, and learns nothing.


# %%
@dataclass(frozen=True)
class Size:
    """The model, and how many numbers it is trained on and asked for."""

    width: int
    depth: int
    longest_answer: int
    trained: int
    passes: int
    held_out: int


# The longest answer is one of 57 characters, in Finnish, and END.
FULL = Size(width=64, depth=3, longest_answer=58, trained=9000, passes=2, held_out=1000)
QUICK = Size(width=16, depth=1, longest_answer=6, trained=20, passes=1, held_out=5)

# %% [markdown]
# ## The model


# %%
def trained_speller(size: Size, seed: int, numbers: list[int]) -> Speller:
    keras.utils.set_random_seed(seed)
    speller = Speller(size.width, size.depth, size.longest_answer)
    rows, model = make_rows(numbers), training_model(speller)
    start = time.perf_counter()
    train(model, rows, size.passes, seed)
    taken = time.perf_counter() - start
    print(f"{model.count_params()} parameters, {len(rows)} answers, trained in {taken:.0f} s", flush=True)
    return speller


# %% [markdown]
# ## What it answers


# %%
def in_batches(run: Callable[[Arrays], Arrays], inputs: Arrays) -> Arrays:
    """What a model gives for many rows."""
    count = len(inputs["prompt"])
    parts = [run({name: x[n : n + BATCH] for name, x in inputs.items()}) for n in range(0, count, BATCH)]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def shares_of(rows: Sequence[Row], answers: Sequence[str]) -> dict[str, dict[str, float]]:
    """The share of exact answers, by direction, then by language."""
    exact: dict[tuple[str, str], list[bool]] = {}
    for row, answer in zip(rows, answers, strict=True):
        exact.setdefault((row.direction, row.language), []).append(row.answer == answer)
    means = {key: sum(hits) / len(hits) for key, hits in exact.items()}
    return {direction: {language: means[direction, language] for language in LANGUAGES} for direction in DIRECTIONS}


def print_shares(shares: dict[str, dict[str, float]]) -> None:
    """One line a language."""
    table = Table("language", box=None, padding=(0, 1))
    for direction in shares:
        table.add_column(direction, justify="right")
    for name, language in sorted((str(Locale(language).english_name), language) for language in LANGUAGES):
        table.add_row(name, *(f"{share[language]:.1%}" for share in shares.values()))
    rich_print(table)


# %% [markdown]
# ## The comparison


# %%
def compare(speller: Speller, model: keras.Model, bundle: Any, rows: list[Row]) -> dict[str, float]:
    """Answers with the one file, in Keras and in one pass; prints what is exact and what is equal."""
    prompts = encode_prompts(rows)
    found = in_batches(bundle.run, prompts)
    texts = decode_answers(found["tokens"], found["lengths"])
    print_shares(shares_of(rows, texts))
    mean = float(np.mean([text == row.answer for text, row in zip(texts, rows, strict=True)]))
    print(f"{len(rows)} held-out answers, exact: {mean:.2%}")
    equal = {
        "Keras": in_batches(model.predict_on_batch, prompts)["tokens"] == found["tokens"],
        "one pass of Keras without a cache": as_in_one_pass(training_model(speller), rows, found),
    }
    counts = {name: int(same.all(axis=1).sum()) for name, same in equal.items()}
    for name, count in counts.items():
        print(f"onnxruntime against {name}: {count} answers equal, token by token")
    return {"answers": len(rows), "exact": mean, **counts}


def as_in_one_pass(model: Any, rows: list[Row], found: Arrays) -> np.ndarray:
    """Whether each token is the likeliest to come after the prompt and the tokens before it, computed at once."""
    answers = [row[:length].tolist() for row, length in zip(found["tokens"], found["lengths"], strict=True)]
    tokens, wanted, counted = join(rows, answers)
    parts = range(0, len(rows), BATCH)
    likeliest = [np.asarray(model.predict_on_batch(tokens[n : n + BATCH])).argmax(-1) for n in parts]
    return (np.concatenate(likeliest) == wanted) | (counted == 0)


# %% [markdown]
# ## All of it
#
# `main([])` trains on 9000 numbers in all languages; `main(["--quick"])` hardly trains.


# %%
def main(argv: list[str] | None = None) -> dict[str, float]:
    parser = argparse.ArgumentParser(description="Spell numbers with a Transformer whose decoding is one ONNX file.")
    parser.add_argument("--quick", action="store_true", help="train hardly at all")
    parser.add_argument("--seed", type=int, default=0, help="of the split, the batches and the weights")
    parser.add_argument("--out", type=Path, default=Path("artifacts/numbers"), help="the folder to write to")
    args = parser.parse_args(argv)
    size = QUICK if args.quick else FULL
    trained, held_out = split_numbers(args.seed)
    rows = make_rows(held_out[: size.held_out])
    np.random.default_rng(args.seed).shuffle(rows)  # batches of all languages, as they would come
    speller = trained_speller(size, args.seed, trained[: size.trained])
    model = answering_model(speller)
    bundle = export_model(model, args.out / model.name, sample_inputs=encode_prompts(rows[:8]), overwrite=True)
    print(f"export: {bundle.report.summary()}", flush=True)
    results = compare(speller, model, bundle, rows)
    print(f"\nwritten to {args.out}: {model.name} (the bundle)")
    return results


# %%
if __name__ == "__main__":
    # Run as a notebook it has no arguments: those of the process are Jupyter's.
    main(sys.argv[1:] if Path(sys.argv[0]).name == "spell_numbers.py" else [])
