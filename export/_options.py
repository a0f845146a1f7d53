"""Validated options of an export."""

import math
import numbers
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ._errors import ExportError, InputError
from ._format.parity_report import NO_MORE
from ._format.providers import short_name
from ._lowering_names import ADAPTIVE, BATCHED, FOR_ANY, FOR_CPU, FOR_CUDA, LOWERINGS, PORTABLE, instead
from ._onnxruntime_releases import FUSED_OPSET, LOWEST_ONNXRUNTIME, RELEASE_PATTERN, lowest_onnxruntime, release_of

FLOAT32 = "float32"
FLOAT16 = "float16"
INT8 = "int8"
PRECISIONS = (FLOAT32, FLOAT16, INT8)
TRACED_OPSET = 18  # the highest that tf2onnx 1.17 writes, and the default
OPSETS = range(TRACED_OPSET, 25)
STANDARD = (
    "standard"  # a target: standard operators alone, no functions, and no `If` that decides how attention is computed
)


@dataclass(frozen=True, kw_only=True)
class Options:
    """What is asked of an export: `export_model` says what each is, and makes them by `checked_options`.

    Three are no arguments of it: `file`, from which the model is loaded, if it is; `untraceable`, the axes that are
    made static unasked, by name, with what TensorFlow says; and `most`, the highest opset that a target allows, where
    none was asked for.
    """

    file: Path | None = None
    samples: Any = None
    opset: int | None = None
    lowering: str = ADAPTIVE
    precision: str = FLOAT32
    provider: str = "cpu"
    tolerance: Mapping[str, float] = field(default_factory=lambda: dict(NO_MORE))
    safe_mode: bool = True
    strict: bool = False
    saved_model: bool = True
    static_axes: Mapping[str, int] = field(default_factory=dict)
    calibration: Any = None
    limit: float | None = None
    untraceable: Mapping[str, str] = field(default_factory=dict)
    target: str | None = None
    max_opset: int | None = None

    @property
    def written_for(self) -> str:
        """Device that attention is written for: `FOR_CPU`, `FOR_CUDA` or `FOR_ANY`."""
        devices = {"cpu": FOR_CPU, "cuda": FOR_CUDA}
        return FOR_ANY if self.target == STANDARD else devices.get(self.provider, FOR_ANY)


def validate_options(*, tolerance: Any, static_axes: Any, **options_by_name: Any) -> Options:
    """Return the options of an export, by the names of `Options`.

    Raises:
        ProviderError: The provider is unknown.
        ExportError: Another value is, or they do not go together.
        InputError: `static_axes` are no mapping from names to sizes of 1 or more.
    """
    options_by_name["provider"] = short_name(options_by_name.get("provider", Options.provider))
    options = Options(
        **options_by_name, tolerance=_parse_tolerance(tolerance), static_axes=_parse_static_axes(static_axes)
    )
    choices = (("lowering", LOWERINGS), ("precision", PRECISIONS))
    for name, allowed in choices:
        if (value := getattr(options, name)) not in allowed:
            raise ExportError(f"`{name}` must be one of {allowed}. Received: {value!r}.{instead(value)}")
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
    """Return options by which a file runs on the onnxruntime that its target names, if that is one.

    Raises:
        ExportError: The target is no release, is too old, or does not go together with what else is asked.
    """
    target = options.target
    if target is None or target == STANDARD:
        return options
    oldest = LOWEST_ONNXRUNTIME[TRACED_OPSET]
    if not isinstance(target, str) or not RELEASE_PATTERN.fullmatch(target) or release_of(target) < release_of(oldest):
        raise ExportError(
            f"`target` must be {STANDARD!r} or the lowest onnxruntime that the file shall run on, {oldest} or newer, "
            f"such as '1.19'. Received: {target!r}."
        )

    def lowest_release(opset: int | None, lowering: str) -> str:
        form = BATCHED if (lowering, options.written_for) == (ADAPTIVE, FOR_CUDA) else lowering
        return lowest_onnxruntime(opset or FUSED_OPSET, [form])

    def is_supported(opset: int | None, lowering: str) -> bool:
        return release_of(lowest_release(opset, lowering)) <= release_of(target)

    opset, lowering = options.opset, options.lowering
    if opset is None and lowering != "fused" and not is_supported(None, lowering):
        opset = TRACED_OPSET
    if lowering == ADAPTIVE and not is_supported(opset, lowering):
        lowering = PORTABLE
    if not is_supported(opset, lowering):
        option = f"opset={opset}" if lowering == PORTABLE else f"lowering={lowering!r}"
        raise ExportError(
            f"`{option}` needs onnxruntime {lowest_release(opset, lowering)} or newer. Received: target={target!r}. Leave out "
            "one of them."
        )
    max_opset = None
    if options.opset is None:
        max_opset = max(each for each in OPSETS if release_of(LOWEST_ONNXRUNTIME[each]) <= release_of(target))
    return replace(options, opset=opset, lowering=lowering, most=max_opset)


def _check_calibration(options: Options) -> None:
    """Check that arrays for int8 are given where they are used, and a limit where it is measured."""
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
        raise ExportError("`limit` is measured on `calibration`, the arrays that int8 is calibrated on. Give both.")


def _parse_static_axes(value: Any) -> dict[str, int]:
    """Return sizes by the names of axes; whether the model has such axes is seen later."""
    value = {} if value is None else value
    if not isinstance(value, Mapping):
        raise InputError(f"`static_axes` must be a mapping from names to sizes. Received: {type(value).__name__}.")
    for name, size in value.items():
        is_integer = isinstance(size, numbers.Integral) and not isinstance(size, bool)  # NumPy's integers too
        if not isinstance(name, str) or not is_integer or size < 1:
            raise InputError(
                f"`static_axes` must map names of axes to integers of 1 or more. Received: {name!r}: {size!r}."
            )
    return {name: int(size) for name, size in value.items()}


def _parse_tolerance(value: Any) -> dict[str, float]:
    """Return {"relative", "absolute"}: of a number it is the relative one and a tenth of it the absolute one."""
    if value is None:
        return dict(NO_MORE)
    pair = value if isinstance(value, tuple | list) else (value, _divide_by_ten(value))
    if len(pair) != 2 or not all(map(_is_tolerance, pair)):
        raise ExportError(
            f"`tolerance` must be a number of 0 or more, or two as (relative, absolute). Received: {value!r}."
        )
    return {"relative": float(pair[0]), "absolute": float(pair[1])}


def _divide_by_ten(value: Any) -> Any:
    return float(value) / 10 if _is_tolerance(value) else value


def _is_tolerance(value: Any) -> bool:
    is_real = isinstance(value, numbers.Real) and not isinstance(value, bool)  # NumPy's numbers are Real too
    return is_real and math.isfinite(value) and value >= 0
