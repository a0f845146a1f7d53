"""The warnings of a parity report: what a match leaves open, and what a precision costs, in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

ENOUGH = 5  # cases
NOISY = 0.01  # of a number, which a fault may then be as large as
FAR = 0.1  # what float16 or int8 was seen to do
TIED = 0.01  # of all choices
FEW = 32  # rows
MAX_INT8_SIZE_RATIO = 0.9  # of the int8 file to the float32 file; above it int8 saves little
SLOWER = 1.1  # times as long as in float32
TOLD = 0.1  # milliseconds from which on a time tells something


def warnings_of(coverage: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what the golden cases leave open, a sentence each; see `coverage_of` for what is read.

    Each names the axis, input or output it is about.
    """
    found = []
    cases, refused = coverage["cases"], coverage["refused"]
    if cases < ENOUGH:
        left_out = f"; Keras itself cannot run {refused} more" if refused else ""
        found.append(f"Only {cases} case{'s' if cases != 1 else ''} could be compared{left_out}.")
    for axis, sizes in coverage["axes"].items():
        if len(sizes) == 1:
            found.append(f"Axis `{axis}` is called dynamic, but only size {sizes[0]} was compared.")
    for name in coverage.get("small_only", ()):
        found.append(f"No case is long enough for the form that layer `{name}` takes for large sizes.")
    varying = any(known["varies"] for known in coverage["outputs"].values())
    for name, known in coverage["inputs"].items():
        if known["moves"] == [] and varying:  # else it is the outputs that are at fault
            found.append(f"Input `{name}` moves no output.")
        if known["moves"] is None:
            found.append(f"Input `{name}` has one value in all cases, so the effect of other values was not compared.")
        if texts := known.get("values", {}).get("nan"):
            examples = " and ".join(map(repr, texts))
            found.append(
                f"Keras gives NaN for texts in input `{name}` such as {examples}. A mean over a text without a known "
                "word is NaN, for instance."
            )
    for name, known in coverage["outputs"].items():
        if not known["varies"]:
            found.append(f"Output `{name}` is the same for all inputs, so its match says little.")
        if (share := known.get("rounding")) is not None and share > NOISY:
            found.append(f"Rounding alone may move output `{name}` by {share:.0%}: a smaller fault would not be found.")
        if (seen := known.get("seen_in_precision")) is not None and seen > FAR:
            where = f", in case `{known['seen_in_case']}`" if "seen_in_case" in known else ""
            found.append(f"Precision moved output `{name}` by up to {seen:.2g} of the scale of its numbers{where}.")
        if (share := known.get("ties")) is not None and share > TIED:
            found.append(f"Rounding alone decides {share:.0%} of output `{name}`, where any value would pass.")
    return tuple(found)


def calibrated(precision: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Return what an int8 file with fixed ranges leaves open, a sentence each; see `CalibratedFile`."""
    about = None if precision is None else precision.get("calibration")
    if about is None:
        return ()
    found = []
    if not about["int8_layers"]:
        found.append(
            "Nothing in the model became int8: outside of loops it has no convolution, no product with a matrix wide "
            "enough, and no large embedding."
        )
    elif about["rows"] < FEW:
        found.append(f"int8 was calibrated on {about['rows']} rows: numbers beyond theirs are clipped.")
    for name, output in about["outputs"].items():
        if about["limit"] is None and output["share"] > FAR:
            found.append(
                f"On the calibration arrays int8 moved output `{name}` by up to {output['share']:.2g} of its largest "
                f"number, {output['mean']:.2g} in the mean."
            )
    return tuple(found)


def int8_without_gain(precision: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Return sentences about an int8 file that is hardly smaller than float32, or gives the same numbers."""
    if precision is None or precision["name"] != "int8":
        return ()
    sentences = []
    if (ratio := precision.get("size_ratio", 0)) >= MAX_INT8_SIZE_RATIO:
        sentences.append(f"The int8 file has {ratio:.2f} times the size of the float32 file, so int8 saves little.")
    if precision.get("changes_nothing"):
        sentences.append("In no golden case does a number of the int8 file differ from the float32 file.")
    return tuple(sentences)


def range_warnings(precision: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Return a sentence for each layer near the end of float16 and for each input of unknown range."""
    ranges = (precision or {}).get("ranges", {"near_limit": {}, "drawn_inputs": {}})
    near = (
        f"In float16 layer `{layer}` computes numbers of up to {largest:.3g}, and float16 ends at 65504. Pass "
        "`sample_inputs` with the largest values that are expected: a layer beyond the end stays float32."
        for layer, largest in ranges["near_limit"].items()
    )
    unknown = (
        f"Input `{name}` has no samples, and its values decide the range of layer `{layer}`, which computes in "
        f"float16, up to 65504. Pass values as they will be: `sample_inputs={{{name!r}: ...}}` (`--samples`)."
        for name, layer in ranges["drawn_inputs"].items()
    )
    return (*near, *unknown)


def slower(precision: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Return a sentence where a converted file took longer than that in float32; see `gains` for what is read."""
    if precision is None or precision["time_ratio"] <= SLOWER or precision.get("float32_milliseconds", TOLD) < TOLD:
        return ()
    case = f"case `{precision['timed_case']}`" if "timed_case" in precision else "the largest case"
    return (f"In {precision['name']} {case} took {precision['time_ratio']:.2f} times as long as in float32.",)


def calibration_lines(about: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield how far an int8 file is from float32 on the rows it was calibrated on; nothing where there were none.

    Args:
        about: `calibration` of a parity report's `precision`.
    """
    if about is None:
        return
    yield f"calibrated on {about['rows']} rows; {len(about['int8_layers'])} layers in int8"
    for name, found in about["outputs"].items():
        chosen = f"; {found['same_choices']:.2%} of rows have the same top class" if "same_choices" in found else ""
        off = f"off by {found['share']:.2g} of its largest number at most, by {found['mean']:.2g} in the mean"
        differ = f"{found['differ']:.2%} of its numbers differ" if "differ" in found else off
        yield f"{name}: {differ}{chosen}"
    if about["float32_layers"]:
        yield f"stay float32, by measurement: {', '.join(about['float32_layers'])}"
