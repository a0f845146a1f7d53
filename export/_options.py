"""Validated options of an export."""

import math
import numbers
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ._errors import ExportError, InputError
from ._format.parity_report import ZERO_TOLERANCE
from ._format.providers import short_name
from ._lowering_names import (
    ADAPTIVE,
    ADAPTIVE_GPU,
    FOR_ANY,
    FOR_CPU,
    FOR_CUDA,
    LOWERINGS,
    PORTABLE,
    removed_lowering_hint,
)
from ._onnxruntime_releases import (
    FUSED_OPSET,
    LOWEST_ONNXRUNTIME,
    RELEASE_PATTERN,
    find_lowest_onnxruntime,
    parse_release,
)

FLOAT32 = "float32"
FLOAT16 = "float16"
INT8 = "int8"
PRECISIONS = (FLOAT32, FLOAT16, INT8)
TF2ONNX_OPSET = 18  # the highest opset that tf2onnx 1.17 writes
OPSETS = range(TF2ONNX_OPSET, 25)
# The target of files for any runtime: standard operators only, no functions, and no `If` that selects a form.
STANDARD = "standard"


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of an export, as returned by `validate_options`: arguments of `export_model` and three more."""

    # The `.keras` file that the model is loaded from, if it is.
    file: Path | None = None
    samples: Any = None
    opset: int | None = None
    lowering: str = ADAPTIVE
    precision: str = FLOAT32
    provider: str = "cpu"
    tolerance: Mapping[str, float] = field(default_factory=lambda: dict(ZERO_TOLERANCE))
    safe_mode: bool = True
    strict: bool = False
    saved_model: bool = True
    static_axes: Mapping[str, int] = field(default_factory=dict)
    calibration: Any = None
    limit: float | None = None
    # Axes that are static because TensorFlow cannot trace them, with its message, by axis name.
    untraceable_axes: Mapping[str, str] = field(default_factory=dict)
    target: str | None = None
    # The highest opset that the target allows, if the user passes no opset.
    max_opset: int | None = None

    @property
    def attention_target(self) -> str:
        """The target device of attention: `FOR_CPU`, `FOR_CUDA` or `FOR_ANY`."""
        devices = {"cpu": FOR_CPU, "cuda": FOR_CUDA}
        return FOR_ANY if self.target == STANDARD else devices.get(self.provider, FOR_ANY)


def validate_options(*, tolerance: Any, static_axes: Any, **options_by_name: Any) -> Options:
    """Validate the options of an export, and return them with the opset and lowering that the target requires.

    Raises:
        ProviderError: If the provider is unknown.
        ExportError: If another value is unknown, or two options exclude each other.
        InputError: If `static_axes` does not map names to sizes of 1 or more.
    """
    options_by_name["provider"] = short_name(options_by_name.get("provider", Options.provider))
    relative_and_absolute, sizes = _parse_tolerance(tolerance), _parse_static_axes(static_axes)
    options = Options(**options_by_name, tolerance=relative_and_absolute, static_axes=sizes)
    for name, allowed in (("lowering", LOWERINGS), ("precision", PRECISIONS)):
        if (value := getattr(options, name)) not in allowed:
            raise ExportError(f"`{name}` must be one of {allowed}. Received: {value!r}.{removed_lowering_hint(value)}")
    _check_opset(options)
    _check_calibration(options)
    return _apply_target(options)


def _check_opset(options: Options) -> None:
    opset = options.opset
    if opset is None:
        return
    if isinstance(opset, bool) or not isinstance(opset, int) or opset not in OPSETS:
        raise ExportError(f"`opset` must be an integer from {OPSETS[0]} to {OPSETS[-1]}. Received: {opset!r}.")
    if options.lowering == "fused" and opset < FUSED_OPSET:
        raise ExportError(
            f"`lowering='fused'` needs opset {FUSED_OPSET}, the first whose `Attention` takes lengths. "
            f"Received: opset={opset}. Leave `opset` out, or use another lowering."
        )


def _apply_target(options: Options) -> Options:
    """Return options with an opset and a lowering that run on the onnxruntime release of the target."""
    target = options.target
    if target is None or target == STANDARD:
        return options
    oldest = LOWEST_ONNXRUNTIME[TF2ONNX_OPSET]
    if (
        not isinstance(target, str)
        or not RELEASE_PATTERN.fullmatch(target)
        or parse_release(target) < parse_release(oldest)
    ):
        raise ExportError(
            f"`target` must be {STANDARD!r} or the oldest onnxruntime release that the file must run on, such as "
            f"'1.19', and not below {oldest}. Received: {target!r}."
        )

    def lowest_release(opset: int | None, lowering: str) -> str:
        form = ADAPTIVE_GPU if (lowering, options.attention_target) == (ADAPTIVE, FOR_CUDA) else lowering
        return find_lowest_onnxruntime(opset or FUSED_OPSET, [form])

    def is_supported(opset: int | None, lowering: str) -> bool:
        return parse_release(lowest_release(opset, lowering)) <= parse_release(target)

    # A lower opset comes first: it costs only the operator `Attention`, and `portable` the large forms of `adaptive`.
    opset, lowering = options.opset, options.lowering
    if opset is None and lowering != "fused" and not is_supported(None, lowering):
        opset = TF2ONNX_OPSET
    if lowering == ADAPTIVE and not is_supported(opset, lowering):
        lowering = PORTABLE
    if not is_supported(opset, lowering):
        option = f"opset={opset}" if lowering == PORTABLE else f"lowering={lowering!r}"
        raise ExportError(
            f"`{option}` needs onnxruntime {lowest_release(opset, lowering)} or newer. Received: target={target!r}. "
            "Leave out one of them."
        )
    supported = (opset for opset in OPSETS if parse_release(LOWEST_ONNXRUNTIME[opset]) <= parse_release(target))
    max_opset = None if options.opset is not None else max(supported)
    return replace(options, opset=opset, lowering=lowering, max_opset=max_opset)


def _check_calibration(options: Options) -> None:
    """Check that `calibration` belongs to int8 on a CPU, and that `limit` is not passed without it."""
    calibration, limit = options.calibration, options.limit
    if calibration is not None and (options.precision != "int8" or options.provider != "cpu"):
        raise ExportError(
            "`calibration` is for `precision='int8'` and `provider='cpu'`. Received: "
            f"precision={options.precision!r}, provider={options.provider!r}."
        )
    if limit is None:
        return
    if not _is_tolerance(limit) or limit == 0:
        raise ExportError(f"`limit` must be a number above 0. Received: {limit!r}.")
    if calibration is None:
        raise ExportError("`limit` needs `calibration`: the error of int8 is measured on the calibration arrays.")


def _parse_static_axes(value: Any) -> dict[str, int]:
    """Return sizes by axis name. A later stage checks that the model has these axes."""
    value = {} if value is None else value
    if not isinstance(value, Mapping):
        raise InputError(f"`static_axes` must be a mapping from names to sizes. Received: {type(value).__name__}.")
    for name, size in value.items():
        # `Integral` includes the integers of NumPy.
        is_integer = isinstance(size, numbers.Integral) and not isinstance(size, bool)
        if not isinstance(name, str) or not is_integer or size < 1:
            raise InputError(
                f"`static_axes` must map names of axes to integers of 1 or more. Received: {name!r}: {size!r}."
            )
    return {name: int(size) for name, size in value.items()}


def _parse_tolerance(value: Any) -> dict[str, float]:
    """Return {"relative": r, "absolute": a} for a pair (r, a), or for a number r, with a = r / 10."""
    if value is None:
        return dict(ZERO_TOLERANCE)
    pair = value if isinstance(value, tuple | list) else (value, _divide_by_ten(value))
    if len(pair) != 2 or not all(map(_is_tolerance, pair)):
        raise ExportError(
            f"`tolerance` must be a number of 0 or more, or two as (relative, absolute). Received: {value!r}."
        )
    return {"relative": float(pair[0]), "absolute": float(pair[1])}


def _divide_by_ten(value: Any) -> Any:
    return float(value) / 10 if _is_tolerance(value) else value


def _is_tolerance(value: Any) -> bool:
    is_real = isinstance(value, numbers.Real) and not isinstance(value, bool)
    return is_real and math.isfinite(value) and value >= 0
