"""What a bundle says of int8 with calibration, for `inspect` and the report's page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


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
