"""Contestant of the decoding benchmark: a plain Python loop over the file of a decoding step."""

from pathlib import Path
from typing import Any

import numpy as np
from _contestant import Arrays, Build, Runner

from keras_attn_export._format.interruptible_session import open_session


def build_loop(spec: dict[str, Any]) -> Build:
    """Build greedy decoding: the token with the highest score at each step, until all rows have ended."""
    options = spec["options"]
    start, end, limit = options["start"], options["end"], options["limit"]

    def build(inputs: Arrays) -> Runner:
        encode, step = (
            open_session(Path(options[part]), "cpu", threads=spec["threads"]) for part in ("encoder", "step")
        )
        encoded_names = [output.name for output in encode.get_outputs()]
        constant_names = {port.name for port in step.get_inputs()} - {"token", "state"}

        def run() -> list[np.ndarray]:
            encoded = dict(zip(encoded_names, encode.run(None, inputs), strict=True))
            step_inputs = {name: array for name, array in {**inputs, **encoded}.items() if name in constant_names}
            step_inputs["state"] = encoded["state"]
            count = len(encoded["state"])
            token, running = np.full(count, start, "int32"), np.ones(count, bool)
            lengths, scores = np.zeros(count, "int32"), np.zeros(count, "float32")
            tokens = np.full((count, limit), end or 0, "int32")
            for position in range(limit):
                logits, step_inputs["state"] = step.run(["logits", "next_state"], {**step_inputs, "token": token})
                token = logits.argmax(-1).astype("int32")
                largest = logits.max(-1)
                score = -np.log(np.exp(logits - largest[:, None]).sum(-1))
                tokens[running, position] = token[running]
                scores[running] += score[running]
                lengths += running
                if end is not None:
                    running &= token != end
                    if not running.any():
                        break
            return [lengths, scores, tokens]  # in the order of outputs of `greedy`

        return Runner(run, run)

    return build
