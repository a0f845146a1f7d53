"""The loop of a decoder in steps: encoder and step are run by onnxruntime, and what goes between them stays there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .._errors import ExportError
from .._standalone.verify import Arrays
from .step_values import Runner, Values
from .steps_manifest import (
    ENCODER,
    ENCODER_INPUT,
    ENCODER_OUTPUT,
    POSITION,
    STEP,
    STEP_OUTPUT,
    TOKEN,
    ZEROS,
    Manifest,
)

Places = dict[tuple[str, str], Any]  # values by where they come from, and their name there


def generated(
    manifest: Manifest, parts: Mapping[str, Manifest], runners: Mapping[str, Runner], inputs: Arrays
) -> Arrays:
    """Return the likeliest token at each step until every row has ended, as `keras_attn.decoding.greedy` does.

    Args:
        manifest: That of the decoder.
        parts: Those of its encoder and step.
        runners: What runs each of them.
        inputs: The encoder's.

    Raises:
        ExportError: onnxruntime fails on these inputs.
    """
    try:
        return _generated(manifest, parts, runners, inputs)
    except ExportError as error:
        empty = [f"`{name}` {array.shape}" for name, array in inputs.items() if 0 in array.shape[1:]]
        if not empty:
            raise
        raise ExportError(
            "Inputs must have no axis of size 0 but the batch where onnxruntime fails on it. "
            f"Received: {', '.join(empty)}. Give each at least one position. {error}"
        ) from error


def _generated(
    manifest: Manifest, parts: Mapping[str, Manifest], runners: Mapping[str, Runner], inputs: Arrays
) -> Arrays:
    encoder = runners[ENCODER]
    given = {name: encoder.put(array) for name, array in inputs.items()}
    encoded = encoder.run(given, [spec["name"] for spec in parts[ENCODER]["outputs"]])
    there: Places = {(ENCODER_INPUT, name): value for name, value in given.items()}
    there |= {(ENCODER_OUTPUT, name): value for name, value in encoded.items()}
    count = len(next(iter(inputs.values())))
    return _Loop(manifest, parts[STEP], runners[STEP]).run(there, count)


class _Loop:
    """Runs the step until each row has ended."""

    def __init__(self, manifest: Manifest, step: Manifest, runner: Runner) -> None:
        self._feeds, self._start, self._end = manifest["feeds"], manifest["start"], manifest["end"]
        self._limit, self._logits, self._collected = (manifest[name] for name in ("max_length", "logits", "collected"))
        self._runner = runner
        self._dtypes = {spec["name"]: np.dtype(spec["dtype"]) for spec in step["inputs"]}
        # a batch of fixed size loses no row
        self._may_leave = all(spec["shape"] and isinstance(spec["shape"][0], str) for spec in step["inputs"])
        self._from_step = {
            feed["input"]: feed["then"]["name"] for feed in self._feeds if feed["then"]["from"] == STEP_OUTPUT
        }
        self._counted = {
            feed["input"]: feed["then"]["from"] for feed in self._feeds if feed["then"]["from"] in (TOKEN, POSITION)
        }

    def run(self, there: Places, count: int) -> Arrays:
        """Return the answer for so many rows.

        Args:
            there: What the encoder takes and gives.
            count: The number of rows.
        """
        values, token = self._first(there, count)
        rows, running = np.arange(count), np.ones(count, bool)
        answer = _Answer(count, self._limit, self._end)
        read = [self._logits, *self._collected.values()]
        outputs = [*dict.fromkeys([*read, *self._from_step.values()])]
        for number in range(self._limit):
            out = self._runner.run(values | self._of_number(number, token), outputs, read)
            logits = self._runner.get(out[self._logits])
            token = logits.argmax(-1)  # the first of equal ones
            found = {name: self._runner.get(out[source]) for name, source in self._collected.items()}
            answer.add(number, rows, running, {"tokens": token, "scores": _log_probability(logits), **found})
            if self._end is not None:
                running = running & (token != self._end)
            left = np.count_nonzero(running)
            if not left:
                break
            values |= {name: out[source] for name, source in self._from_step.items()}
            if self._may_leave and 2 * left < len(rows):
                values = {name: self._only(value, running) for name, value in values.items()}
                rows, token, running = rows[running], token[running], np.ones(left, bool)
        return answer.finished()

    def _first(self, there: Places, count: int) -> tuple[Values, np.ndarray]:
        """Return what is fed at the first step but for token and position, and the token before it."""
        values = {}
        for feed in self._feeds:
            name, first = feed["input"], feed["first"]
            if first["from"] in (ENCODER_INPUT, ENCODER_OUTPUT):
                values[name] = self._as_taken(name, there[first["from"], first["name"]])
            elif first["from"] == ZEROS:
                values[name] = self._runner.put(np.zeros((count, *first["shape"]), self._dtypes[name]))
        if isinstance(self._start, int):
            return values, np.full(count, self._start)
        return values, self._runner.get(there[self._start["from"], self._start["name"]])

    def _as_taken(self, name: str, value: Any) -> Any:
        """Return a value in the dtype of an input, as it is where it has that."""
        if self._runner.dtype(value) == self._dtypes[name]:
            return value
        return self._runner.put(self._runner.get(value).astype(self._dtypes[name]))

    def _of_number(self, number: int, token: np.ndarray) -> Values:
        """Return the inputs that hang on the number of a step: the last token, and the position."""
        return {
            name: self._runner.put(
                token.astype(self._dtypes[name]) if source == TOKEN else np.full(len(token), number, self._dtypes[name])
            )
            for name, source in self._counted.items()
        }

    def _only(self, value: Any, rows: np.ndarray) -> Any:
        """Return some rows. From a device they pass through the memory of the CPU, which is seldom: rows halve."""
        return self._runner.put(self._runner.get(value)[rows])


class _Answer:
    """What was found so far, in arrays of all rows and steps."""

    def __init__(self, count: int, limit: int, end: int | None) -> None:
        self._lengths = np.zeros(count, np.int32)
        self._shape = (count, limit)
        self._found = {
            "tokens": np.full(self._shape, 0 if end is None else end, np.int32),
            "scores": np.zeros(self._shape, np.float32),
        }

    def add(self, number: int, rows: np.ndarray, running: np.ndarray, found: Arrays) -> None:
        """Add a step: what was found for rows, of those that go on."""
        whole = running.all()
        at = rows if whole else rows[running]
        self._lengths[at] += 1
        for name, array in found.items():
            if name not in self._found:
                self._found[name] = np.zeros((*self._shape, *array.shape[1:]), array.dtype)
            self._found[name][at, number] = array if whole else array[running]

    def finished(self) -> Arrays:
        """Return the answer by name."""
        tokens, scores = self._found.pop("tokens"), self._found.pop("scores")
        return {"tokens": tokens, "lengths": self._lengths, "scores": scores.sum(axis=1), **self._found}


def _log_probability(logits: np.ndarray) -> np.ndarray:
    """Return the logarithm of the softmax of the largest logit of each row, in float32 at least."""
    wide = logits.astype(np.float32, copy=False) if logits.dtype == np.float16 else logits
    score: np.ndarray = -np.log(np.exp(wide - wide.max(axis=-1, keepdims=True)).sum(axis=-1))
    return score
