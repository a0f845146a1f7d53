"""Choose the layers that stay float32, by their effect on the quantization error."""

import math
from collections.abc import Callable, Collection, Sequence

from .quantization_error import ErrorsByOutput

MAX_NOISE = 0.02  # share of an output; above it layers are tried
MIN_NOISE_REDUCTION = 0.2  # share of the noise that a further float32 layer must remove
MAX_FLOAT32_SHARE = 0.25  # of the layers
MAX_GROUPS = 32  # of layers that are tried together, to bound the time for models of hundreds of layers


def find_max_noise(outputs: ErrorsByOutput) -> float:
    """Return the noise of the output that has most of it."""
    return max((output["noise"] for output in outputs.values()), default=0.0)


def choose_float32_layers(
    layers: Sequence[str], measure: Callable[[Collection[str]], ErrorsByOutput], limit: float | None
) -> list[str]:
    """Return the layers that stay float32: none if the error is small with all layers in int8.

    Otherwise each group of layers is quantized alone, and the groups with most noise become float32 one by one, as long
    as each removes `MIN_GAIN` of the noise that is left, until the error is small.

    Args:
        layers: The layers that can be quantized, in the order in which they run.
        measure: Returns the error with some layers in int8.
        limit: The largest allowed error of an output, as a share of its largest number.
    """

    def is_small(error: ErrorsByOutput) -> bool:
        largest = max((output["share"] for output in error.values()), default=0.0)
        return find_max_noise(error) <= MAX_NOISE and (limit is None or largest <= limit)

    error = measure(layers)
    if is_small(error) or len(layers) < 2:
        return []
    size = math.ceil(len(layers) / MAX_GROUPS)
    groups = [layers[start : start + size] for start in range(0, len(layers), size)]
    float32_layers: list[str] = []
    for group in sorted(groups, key=lambda group: find_max_noise(measure(group)), reverse=True):
        candidates = [*float32_layers, *group]
        if len(candidates) > max(1, MAX_FLOAT32_SHARE * len(layers)):
            break
        candidate_error = measure([layer for layer in layers if layer not in candidates])
        if find_max_noise(candidate_error) > (1 - MIN_NOISE_REDUCTION) * find_max_noise(error):
            break
        float32_layers, error = candidates, candidate_error
        if is_small(error):
            break
    return [layer for layer in layers if layer in float32_layers]
