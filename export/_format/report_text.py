"""Warnings of a parity report: behaviour without a golden case, and effects of a precision."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

# The thresholds trade missed faults for false alarms. A warning does not fail an export, except with `strict`.
MIN_CASES = 5
# Rounding limit as a share of an element: the check does not detect a fault that is smaller.
MAX_ROUNDING = 0.01
MAX_CHANGE = 0.1  # change of an output by float16 or int8, as a share of the output's scale
MAX_TIES = 0.01  # share of an output's integers and booleans that rounding may change
MIN_ROWS = 32  # rows of calibration data
# Size of the int8 file, and run time of a converted file, divided by the float32 file's.
MAX_SIZE_RATIO = 0.9
MAX_TIME_RATIO = 1.1
MIN_MILLISECONDS = 0.1  # a shorter run is too noisy for a time ratio


def describe_coverage(coverage: Mapping[str, Any]) -> Iterator[str]:
    """Yield warnings about axes, inputs and outputs that the golden cases do not exercise; see `summarize_coverage`."""
    cases, refused = coverage["cases"], coverage["refused"]
    if cases < MIN_CASES:
        refused_text = f"; Keras itself cannot run {refused} more" if refused else ""
        yield f"Only {cases} case{'s' if cases != 1 else ''} could be compared{refused_text}."
    for axis, sizes in coverage["axes"].items():
        if len(sizes) == 1:
            yield f"Axis `{axis}` is dynamic, but only size {sizes[0]} was compared."
    for name in coverage.get("small_only", ()):
        yield f"No case is long enough for the large form of layer `{name}`."
    has_varying_output = any(output["varies"] for output in coverage["outputs"].values())
    for name, entries in coverage["inputs"].items():
        if entries["moves"] == [] and has_varying_output:  # if no output varies, the inputs are not the reason
            yield f"Input `{name}` changes no output."
        if entries["moves"] is None:
            yield f"Input `{name}` has one value in all cases, so the effect of other values was not compared."
        if texts := entries.get("values", {}).get("nan"):
            examples = " and ".join(map(repr, texts))
            yield (
                f"Keras gives NaN for texts in input `{name}` such as {examples}. A mean over a text without a known "
                "word is NaN, for instance."
            )
    for name, entries in coverage["outputs"].items():
        if not entries["varies"]:
            yield f"Output `{name}` is the same for all inputs, so its match proves little."
        if (share := entries.get("rounding")) is not None and share > MAX_ROUNDING:
            yield f"Rounding alone may change output `{name}` by {share:.0%}: a smaller fault would not be found."
        if (change := entries.get("seen_in_precision")) is not None and change > MAX_CHANGE:
            case_text = f", in case `{entries['seen_in_case']}`" if "seen_in_case" in entries else ""
            yield f"Precision changed output `{name}` by up to {change:.2g} of the scale of its elements{case_text}."
        if (share := entries.get("ties")) is not None and share > MAX_TIES:
            yield f"Rounding alone decides {share:.0%} of output `{name}`: any value would pass there."


def describe_precision(precision: Mapping[str, Any]) -> Iterator[str]:
    """Yield warnings about a converted file, from `precision` of a report."""
    if "calibration" in precision:
        yield from _describe_calibration(precision["calibration"])
    if precision["name"] == "int8":
        if (ratio := precision.get("size_ratio", 0)) >= MAX_SIZE_RATIO:
            yield f"The int8 file has {ratio:.2f} times the size of the float32 file, so int8 saves little."
        if precision.get("changes_nothing"):
            yield "In all golden cases the outputs of the int8 file equal those of the float32 file."
    if "ranges" in precision:
        yield from _describe_ranges(precision["ranges"])


def _describe_calibration(calibration: Mapping[str, Any]) -> Iterator[str]:
    if not calibration["int8_layers"]:
        yield (
            "Nothing in the model became int8: outside of loops it has no convolution, no product with a matrix wide "
            "enough, and no large embedding."
        )
    elif calibration["rows"] < MIN_ROWS:
        yield f"int8 was calibrated on {calibration['rows']} rows: values outside their range are clipped."
    for name, output in calibration["outputs"].items():
        if calibration["limit"] is None and output["share"] > MAX_CHANGE:
            yield (
                f"On the calibration arrays int8 changed output `{name}` by up to {output['share']:.2g} of its largest "
                f"magnitude, {output['mean']:.2g} on average."
            )


def _describe_ranges(ranges: Mapping[str, Any]) -> Iterator[str]:
    for layer, largest in ranges["near_limit"].items():
        yield (
            f"In float16 layer `{layer}` computes values of up to {largest:.3g}, and float16 ends at 65504. Pass "
            "`sample_inputs` with the largest expected values: a layer that exceeds float16 stays float32."
        )
    for name, layer in ranges["drawn_inputs"].items():
        yield (
            f"Input `{name}` has no samples, and its values decide the range of layer `{layer}`, which computes in "
            f"float16, up to 65504. Pass values as they will be: `sample_inputs={{{name!r}: ...}}` (`--samples`)."
        )


def describe_slowdown(precision: Mapping[str, Any]) -> Iterator[str]:
    """Yield a warning if a converted file took longer than the float32 file."""
    is_noise = precision.get("float32_milliseconds", MIN_MILLISECONDS) < MIN_MILLISECONDS
    if precision["time_ratio"] > MAX_TIME_RATIO and not is_noise:
        case = f"case `{precision['timed_case']}`" if "timed_case" in precision else "the largest case"
        yield f"In {precision['name']} {case} took {precision['time_ratio']:.2f} times as long as in float32."


def describe_calibration_error(calibration: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield lines with the quantization errors on the calibration rows, from `calibration` of a report."""
    if calibration is None:
        return
    yield f"calibrated on {calibration['rows']} rows; {len(calibration['int8_layers'])} layers in int8"
    for name, error in calibration["outputs"].items():
        text = f"error at most {error['share']:.2g} of its largest magnitude, {error['mean']:.2g} on average"
        if "differ" in error:
            text = f"{error['differ']:.2%} of its elements differ"
        top1 = f"; {error['same_choices']:.2%} of rows have the same top class" if "same_choices" in error else ""
        yield f"{name}: {text}{top1}"
    if calibration["float32_layers"]:
        yield f"stay float32, by measurement: {', '.join(calibration['float32_layers'])}"
