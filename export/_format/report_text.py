"""Warnings of a parity report, in sentences: limits of the match, and costs of a precision."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

MIN_CASES = 5
MAX_ROUNDING = 0.01  # share of a number; a fault up to this size would not be found
MAX_CHANGE = 0.1  # share of an output's scale by which float16 or int8 changed the output
MAX_TIES = 0.01  # share of the integers and booleans of an output
MIN_ROWS = 32  # of calibration
MAX_SIZE_RATIO = 0.9  # of the int8 file to the float32 file; above it int8 saves little
MAX_TIME_RATIO = 1.1  # of the converted file to the float32 file
MIN_MILLISECONDS = 0.1  # shorter times are noise


def coverage_warnings(coverage: Mapping[str, Any]) -> Iterator[str]:
    """Yield sentences about axes, inputs and outputs that the golden cases do not exercise; see `coverage_of`."""
    cases, refused = coverage["cases"], coverage["refused"]
    if cases < MIN_CASES:
        left_out = f"; Keras itself cannot run {refused} more" if refused else ""
        yield f"Only {cases} case{'s' if cases != 1 else ''} could be compared{left_out}."
    for axis, sizes in coverage["axes"].items():
        if len(sizes) == 1:
            yield f"Axis `{axis}` is called dynamic, but only size {sizes[0]} was compared."
    for name in coverage.get("small_only", ()):
        yield f"No case is long enough for the form that layer `{name}` takes for large sizes."
    any_varies = any(output["varies"] for output in coverage["outputs"].values())
    for name, entries in coverage["inputs"].items():
        if entries["moves"] == [] and any_varies:  # if no output varies, the inputs are not the reason
            yield f"Input `{name}` moves no output."
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
            yield f"Output `{name}` is the same for all inputs, so its match says little."
        if (share := entries.get("rounding")) is not None and share > MAX_ROUNDING:
            yield f"Rounding alone may move output `{name}` by {share:.0%}: a smaller fault would not be found."
        if (change := entries.get("seen_in_precision")) is not None and change > MAX_CHANGE:
            where = f", in case `{entries['seen_in_case']}`" if "seen_in_case" in entries else ""
            yield f"Precision moved output `{name}` by up to {change:.2g} of the scale of its numbers{where}."
        if (share := entries.get("ties")) is not None and share > MAX_TIES:
            yield f"Rounding alone decides {share:.0%} of output `{name}`, where any value would pass."


def precision_warnings(precision: Mapping[str, Any]) -> Iterator[str]:
    """Yield sentences about a converted file, from `precision` of a report."""
    if "calibration" in precision:
        yield from _calibration_warnings(precision["calibration"])
    if precision["name"] == "int8":
        if (ratio := precision.get("size_ratio", 0)) >= MAX_SIZE_RATIO:
            yield f"The int8 file has {ratio:.2f} times the size of the float32 file, so int8 saves little."
        if precision.get("changes_nothing"):
            yield "In no golden case does a number of the int8 file differ from the float32 file."
    if "ranges" in precision:
        yield from _range_warnings(precision["ranges"])


def _calibration_warnings(calibration: Mapping[str, Any]) -> Iterator[str]:
    if not calibration["int8_layers"]:
        yield (
            "Nothing in the model became int8: outside of loops it has no convolution, no product with a matrix wide "
            "enough, and no large embedding."
        )
    elif calibration["rows"] < MIN_ROWS:
        yield f"int8 was calibrated on {calibration['rows']} rows: numbers beyond theirs are clipped."
    for name, output in calibration["outputs"].items():
        if calibration["limit"] is None and output["share"] > MAX_CHANGE:
            yield (
                f"On the calibration arrays int8 moved output `{name}` by up to {output['share']:.2g} of its largest "
                f"number, {output['mean']:.2g} in the mean."
            )


def _range_warnings(ranges: Mapping[str, Any]) -> Iterator[str]:
    for layer, largest in ranges["near_limit"].items():
        yield (
            f"In float16 layer `{layer}` computes numbers of up to {largest:.3g}, and float16 ends at 65504. Pass "
            "`sample_inputs` with the largest values that are expected: a layer beyond the end stays float32."
        )
    for name, layer in ranges["drawn_inputs"].items():
        yield (
            f"Input `{name}` has no samples, and its values decide the range of layer `{layer}`, which computes in "
            f"float16, up to 65504. Pass values as they will be: `sample_inputs={{{name!r}: ...}}` (`--samples`)."
        )


def time_warning(precision: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence if a converted file took longer than the float32 file."""
    is_noise = precision.get("float32_milliseconds", MIN_MILLISECONDS) < MIN_MILLISECONDS
    if precision["time_ratio"] > MAX_TIME_RATIO and not is_noise:
        case = f"case `{precision['timed_case']}`" if "timed_case" in precision else "the largest case"
        yield f"In {precision['name']} {case} took {precision['time_ratio']:.2f} times as long as in float32."


def calibration_lines(calibration: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield the errors of an int8 file on its calibration rows, from `calibration` of a report's `precision`."""
    if calibration is None:
        return
    yield f"calibrated on {calibration['rows']} rows; {len(calibration['int8_layers'])} layers in int8"
    for name, error in calibration["outputs"].items():
        chosen = f"; {error['same_choices']:.2%} of rows have the same top class" if "same_choices" in error else ""
        off = f"off by {error['share']:.2g} of its largest number at most, by {error['mean']:.2g} in the mean"
        differ = f"{error['differ']:.2%} of its numbers differ" if "differ" in error else off
        yield f"{name}: {differ}{chosen}"
    if calibration["float32_layers"]:
        yield f"stay float32, by measurement: {', '.join(calibration['float32_layers'])}"
