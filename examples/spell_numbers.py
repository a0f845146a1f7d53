# %% [markdown]
"""Spells numbers in sixteen languages and reads them back: a Transformer decoder with its loop and cache, in one file.

Run it with `python examples/spell_numbers.py` (`--quick` for hardly any training). It trains a decoder with rotary
positions and grouped heads, joins its prompt's pass and its step with `keras_attn.decoding.greedy`, and exports that as
one ONNX file: prompts go in, whole answers come out. It checks that onnxruntime and Keras answer the same on numbers
that it was not trained on, that a loop outside of the step does too, and that all is what one pass without a cache
says; it measures what the cache and the single file save, and draws `numbers.png`. All is written to
`artifacts/numbers` (`--out`).
"""

# %%
import argparse
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported, or it has no effect

import keras
import numpy as np
from number_data import END, EQUALS, Arrays, Row, decode_answers, encode_prompts, join, make_rows, split_numbers
from number_model import (
    NUM_HEADS,
    NUM_KV_HEADS,
    Speller,
    answering_model,
    prompt_model,
    step_model,
    training_model,
    without_cache_model,
)
from number_report import Shares, draw, print_shares, shares_of
from number_training import train

from keras_attn_export import export_model

BATCH = 256
LENGTHS = (16, 64, 256, 1024)
Run = Callable[[Arrays], Arrays]

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
    repeats: int


# The longest answer is one of 57 characters, in Finnish, and END.
FULL = Size(width=64, depth=3, longest_answer=58, trained=9000, passes=2, held_out=1000, repeats=200)
QUICK = Size(width=16, depth=1, longest_answer=6, trained=20, passes=1, held_out=5, repeats=3)

# %% [markdown]
# ## The models
#
# `answering` is the one file. The others are there to compare with: its prompt's pass and its step, as two files for a
# loop of one's own, and what a step would be without a cache, all tokens anew.


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


def export_all(speller: Speller, samples: Arrays, out: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The models and their bundles by name."""
    makers = [answering_model, prompt_model, step_model, without_cache_model]
    models = {model.name: model for model in (make(speller) for make in makers)}
    bundles = {}
    for name, model in models.items():
        start = time.perf_counter()
        inputs = samples if name in ("answering", "prompt") else None
        bundles[name] = export_model(model, out / name, sample_inputs=inputs, overwrite=True)
        taken = time.perf_counter() - start
        print(f"{name}, exported in {taken:.0f} s: {bundles[name].report.summary()}", flush=True)
    return models, bundles


# %% [markdown]
# ## The loop
#
# The file has it inside. This is the same in Python, for what is measured below.


# %%
def answer_in_a_loop(prompt: Run, step: Run, prompts: Arrays, longest: int) -> np.ndarray:
    """The likeliest token goes into the next step, until every row has ended: tokens (B, L)."""
    state = prompt(prompts)
    token = np.full(len(state["length"]), EQUALS, "int32")
    tokens, running = [], np.ones(len(token), bool)
    while running.any() and len(tokens) < longest:
        out = step({**state, "token": token})
        state = {name.removeprefix("next_"): array for name, array in out.items() if name != "logits"}
        token = np.where(running, out["logits"].argmax(-1), END).astype("int32")
        tokens.append(token)
        running &= token != END
    missing = [np.full_like(token, END)] * (longest - len(tokens))
    return np.stack(tokens + missing, axis=1)


def in_batches(run: Run, inputs: Arrays) -> Arrays:
    """What a model gives for many rows."""
    count = len(inputs["prompt"])
    parts = [run({name: x[n : n + BATCH] for name, x in inputs.items()}) for n in range(0, count, BATCH)]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


# %% [markdown]
# ## The comparison


# %%
def compare(
    speller: Speller, models: dict[str, Any], bundles: dict[str, Any], rows: list[Row]
) -> tuple[dict[str, float], Shares]:
    """Answers with the one file, in Keras, in a loop and in one pass; prints what is exact and what is equal."""
    prompts, longest = encode_prompts(rows), speller.longest_answer
    found = in_batches(bundles["answering"].run, prompts)
    texts = decode_answers(found["tokens"], found["lengths"])
    exact = shares_of(rows, texts)
    print_shares(exact)
    mean = float(np.mean([text == row.answer for text, row in zip(texts, rows, strict=True)]))
    print(f"{len(rows)} held-out answers, exact: {mean:.2%}")

    def loop(part: Arrays) -> Arrays:
        return {"tokens": answer_in_a_loop(bundles["prompt"].run, bundles["step"].run, part, longest)}

    others = {"Keras": models["answering"].predict_on_batch, "a Python loop": loop}
    equal = {name: in_batches(run, prompts)["tokens"] == found["tokens"] for name, run in others.items()}
    equal["one pass of Keras without a cache"] = as_in_one_pass(training_model(speller), rows, found)
    counts = {name: int(same.all(axis=1).sum()) for name, same in equal.items()}
    for name, count in counts.items():
        print(f"onnxruntime against {name}: {count} answers equal, token by token")
    return {"answers": len(rows), "exact": mean, **counts}, exact


def as_in_one_pass(model: Any, rows: list[Row], found: Arrays) -> np.ndarray:
    """Whether each token is the likeliest to come after the prompt and the tokens before it, computed at once."""
    answers = [row[:length].tolist() for row, length in zip(found["tokens"], found["lengths"], strict=True)]
    tokens, wanted, counted = join(rows, answers)
    parts = range(0, len(rows), BATCH)
    likeliest = [np.asarray(model.predict_on_batch(tokens[n : n + BATCH])).argmax(-1) for n in parts]
    return (np.concatenate(likeliest) == wanted) | (counted == 0)


# %% [markdown]
# ## What it costs
#
# A step with a cache reads one key for each token so far; without one it computes all of them again.


# %%
def as_function(bundle: Any) -> Run:
    """What a session gives, by name, with nothing around it that is not timed in both."""
    session = bundle.session()
    names = [output.name for output in session.get_outputs()]
    return lambda inputs: dict(zip(names, session.run(None, inputs), strict=True))


def fastest(functions: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """The milliseconds of the fastest call of each, in turns."""
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(repeats):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            times[name].append(1000 * (time.perf_counter() - start))
    return {name: min(each) for name, each in times.items()}


def measure_lengths(speller: Speller, bundles: dict[str, Any], repeats: int) -> dict[int, dict[str, float]]:
    """The milliseconds of one token, with a cache and without one, by how many tokens there are."""
    rng, measured = np.random.default_rng(0), {}
    with_cache, without = as_function(bundles["step"]), as_function(bundles["without_cache"])
    for length in LENGTHS:
        state = {"token": np.array([EQUALS], "int32"), "length": np.array([length - 1], "int32")}
        for spec in bundles["step"].manifest["inputs"]:
            if spec["name"] not in state:
                size = (1, NUM_KV_HEADS, length, speller.width // NUM_HEADS)
                state[spec["name"]] = rng.normal(size=size).astype("float32")
        tokens = {"tokens": np.full((1, length), EQUALS, "int32")}
        functions = {"with a cache": partial(with_cache, state), "without": partial(without, tokens)}
        measured[length] = fastest(functions, repeats)
    return measured


def measure_loops(speller: Speller, bundles: dict[str, Any], rows: list[Row], repeats: int) -> dict[str, float]:
    """The milliseconds of an answer from the one file and from a loop in Python, by the size of the batch."""
    one_file, prompt, step = (as_function(bundles[name]) for name in ("answering", "prompt", "step"))
    measured = {}
    for batch in (1, 32):
        chosen = encode_prompts(rows[:batch])
        functions = {
            f"one file, batch {batch}": partial(one_file, chosen),
            f"a Python loop, batch {batch}": partial(answer_in_a_loop, prompt, step, chosen, speller.longest_answer),
        }
        measured |= {name: taken / batch for name, taken in fastest(functions, repeats).items()}
    return measured


# %% [markdown]
# ## All of it
#
# `main([])` trains on 9000 numbers in all languages; `main(["--quick"])` hardly trains. The picture is `numbers.png`.


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
    models, bundles = export_all(speller, encode_prompts(rows[:8]), args.out)
    results, exact = compare(speller, models, bundles, rows)
    by_length = measure_lengths(speller, bundles, size.repeats)
    print("milliseconds of a token, by how many there are:")
    for length, taken in by_length.items():
        print(f"  {length:5}  " + ", ".join(f"{name} {ms:.2f}" for name, ms in taken.items()))
        results[f"share, length {length}"] = taken["with a cache"] / taken["without"]
    by_loop = measure_loops(speller, bundles, rows, max(1, size.repeats // 10))
    print("milliseconds of an answer: " + ", ".join(f"{name} {ms:.2f}" for name, ms in by_loop.items()))
    draw(exact, by_length, args.out / "numbers.png")
    print(f"\nwritten to {args.out}: {', '.join(bundles)} (bundles), numbers.png")
    return results | by_loop


# %%
if __name__ == "__main__":
    # Run as a notebook it has no arguments: those of the process are Jupyter's.
    main(sys.argv[1:] if Path(sys.argv[0]).name == "spell_numbers.py" else [])
