"""Sensitive layers: choose the layers that stay float32, by their effect on the quantization error."""

import math
from collections.abc import Callable, Collection, Sequence

from .quantization_error import ErrorsByOutput

# A greedy search. If the error with all layers in int8 is above MAX_NOISE (relative RMS error of an output) or the
# user's limit, each group of neighbouring layers is quantized alone, and the groups are sorted by the noise of the
# outputs, which estimates their contribution. Then the groups become float32 one after another, until the error is
# small, a group removes less than MIN_NOISE_REDUCTION of the remaining noise, or more than MAX_FLOAT32_SHARE of the
# layers would be float32. The thresholds trade accuracy for the speed and size that float32 layers cost.
MAX_NOISE = 0.02
MIN_NOISE_REDUCTION = 0.2
MAX_FLOAT32_SHARE = 0.25
MAX_GROUPS = 32  # bounds the number of runs for models with hundreds of layers


def find_max_noise(outputs: ErrorsByOutput) -> float:
    """Return the largest noise of all outputs."""
    return max((output["noise"] for output in outputs.values()), default=0.0)


def choose_float32_layers(
    layers: Sequence[str], measure: Callable[[Collection[str]], ErrorsByOutput], limit: float | None
) -> list[str]:
    """Return the layers that stay float32; none if the error with all layers in int8 is small.

    Args:
        layers: The layers that can be quantized, in the order of execution.
        measure: Returns the quantization error with the passed layers in int8.
        limit: The largest allowed error of an output, as a share of its largest value.
    """

    def is_small(error: ErrorsByOutput) -> bool:
        max_share = max((output["share"] for output in error.values()), default=0.0)
        return find_max_noise(error) <= MAX_NOISE and (limit is None or max_share <= limit)

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
