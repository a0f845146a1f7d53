"""Choose the layers that stay float32, by their effect on the quantization error."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence

from .quantization_error import Apart

NEAR = 0.02  # noise, as a share of an output, from which on layers are tried
GAIN = 0.2  # of the noise must go with a layer that is left in float32
MOST_LEFT = 0.25  # of the layers
MOST_TRIED = 32  # groups of layers: what is spent on a model of hundreds


def noise_of(outputs: Apart) -> float:
    """Return the noise of the output that has most of it."""
    return max((output["noise"] for output in outputs.values()), default=0.0)


def left_in_float32(
    layers: Sequence[str], measure: Callable[[Collection[str]], Apart], limit: float | None
) -> list[str]:
    """Return the layers that stay float32.

    Where int8 is near with all of them, that is none. Else each is quantized alone, and those that make most noise are
    left out one after the other, as long as a fifth of the noise goes with each, until int8 is near.

    Args:
        layers: Those that can be quantized, in the order in which they run.
        measure: Returns how far int8 is with these layers quantized.
        limit: The largest share that an output may be off, if one was asked for.
    """

    def is_near(outputs: Apart) -> bool:
        largest = max((output["share"] for output in outputs.values()), default=0.0)
        return noise_of(outputs) <= NEAR and (limit is None or largest <= limit)

    now = measure(layers)
    if is_near(now) or len(layers) < 2:
        return []
    size = math.ceil(len(layers) / MOST_TRIED)
    groups = [layers[start : start + size] for start in range(0, len(layers), size)]
    alone = {number: noise_of(measure(group)) for number, group in enumerate(groups)}
    left: list[str] = []
    for number in sorted(alone, key=alone.__getitem__, reverse=True):
        if len(left) + len(groups[number]) > max(1, MOST_LEFT * len(layers)):
            break
        without = [*left, *groups[number]]
        then = measure([layer for layer in layers if layer not in without])
        if noise_of(then) > (1 - GAIN) * noise_of(now):
            break
        left, now = without, then
        if is_near(now):
            break
    return [layer for layer in layers if layer in left]
