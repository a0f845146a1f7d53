"""What may be asked of an export, checked once and before TensorFlow is loaded."""

from __future__ import annotations

import math
import numbers
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ._errors import ExportError, InputError
from ._standalone.verify import FOR_ANY, FOR_CUDA, PROVIDERS, older_onnxruntime, short_name

PORTABLE = "portable"
ADAPTIVE = "adaptive"
LOWERINGS = (ADAPTIVE, PORTABLE, "fused")
REPLACED = ("ragged", "batched", "auto")  # `adaptive` takes their place
BATCHED = "batched"  # the form of `adaptive` for devices such as GPUs
IN_BLOCKS = "portable in blocks"  # the form of `portable` for additive scores on a CPU
LARGE_UNSEEN = (BATCHED, IN_BLOCKS)  # decide by sizes, and golden cases are too small for their form of large ones
FLOAT32 = "float32"
FLOAT16 = "float16"
PRECISIONS = (FLOAT32, FLOAT16, "int8")
TRACED_OPSET = 18  # the highest that tf2onnx 1.17 writes, and the default
OPSETS = range(TRACED_OPSET, 25)
FUSED_OPSET = 24
STANDARD = (
    "standard"  # a target: standard operators alone, no functions, and no `If` that decides how attention is computed
)
NO_MORE = {"relative": 0.0, "absolute": 0.0}  # than what rounding does

# The first onnxruntime release, of 1.15 and later, that loads exported models of each opset and gives Keras's outputs.
# Measured with the last patch of every minor release on models with attention, recurrent layers and convolutions.
LOWEST_ONNXRUNTIME = {18: "1.15", 19: "1.16", 20: "1.17", 21: "1.18", 22: "1.21", 23: "1.23", 24: "1.24"}
# 1.15 crashes on additive scores in blocks, 1.16 to 1.18 give returned weights a wrong shape; with lengths, the op
# `Attention` of 1.24 gives other numbers.
LOWEST_FOR_LOWERING = {ADAPTIVE: "1.19", BATCHED: "1.19", "fused": "1.25"}
# The first that was seen to have kernels for CUDA of all operators of opset 24; in May 2026 it lacked some (27742).
LOWEST_FOR_FUSED_ON_CUDA = "1.31"
_RELEASE = re.compile(r"[0-9]{1,4}(\.[0-9]{1,4}){1,2}")


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
    most: int | None = None

    @property
    def written_for(self) -> str:
        """What attention is written for, as `Provider` has it."""
        return FOR_ANY if self.target == STANDARD else PROVIDERS[self.provider].written_for


def asked_by(form: str) -> str:
    """Return the lowering that is asked for where attention gets a form."""
    return {BATCHED: ADAPTIVE, IN_BLOCKS: PORTABLE}.get(form, form)


def instead(lowering: object) -> str:
    """Return the sentence that names what to use for a lowering that `adaptive` replaces; nothing for others."""
    return " Use 'adaptive', which chooses by sizes and provider." if lowering in REPLACED else ""


def lowest_onnxruntime(opset: int, lowerings: Iterable[str]) -> str:
    """Return the first onnxruntime release that runs models of an opset with attention in these lowerings."""
    used = {*lowerings}
    if ADAPTIVE in used and opset >= FUSED_OPSET:
        used.add("fused")  # one of the forms it decides between
    on_cuda = [LOWEST_FOR_FUSED_ON_CUDA] if BATCHED in used and opset >= FUSED_OPSET else []
    releases = [LOWEST_ONNXRUNTIME[opset], *(LOWEST_FOR_LOWERING[each] for each in used if each in LOWEST_FOR_LOWERING)]
    releases += on_cuda
    return max(releases, key=release_of)


def release_of(version: str) -> tuple[int, ...]:
    """Return the minor release of a version, to be compared."""
    return tuple(map(int, version.split(".")[:2]))


def runs_here(opset: int, lowerings: Iterable[str]) -> bool:
    """Tell whether the installed onnxruntime is one that runs models of an opset with attention in these lowerings."""
    return older_onnxruntime(lowest_onnxruntime(opset, lowerings)) is None


def check_onnxruntime(opset: int, lowerings: Iterable[str]) -> None:
    """Check that the installed onnxruntime, on which an export is checked, is new enough.

    Raises:
        ExportError: It is too old, and would refuse them or give other numbers.
    """
    used = set(lowerings) - {PORTABLE}
    lowest = lowest_onnxruntime(opset, used)
    if found := older_onnxruntime(lowest):
        what = " and ".join([f"opset {opset}", *(f"`lowering={each!r}`" for each in sorted(map(asked_by, used)))])
        raise ExportError(
            f"An ONNX file of {what} needs onnxruntime {lowest} or newer. Received: onnxruntime {found}. "
            "Upgrade onnxruntime, leave `opset` out, or use `lowering='portable'`."
        )


def checked_options(*, tolerance: Any, static_axes: Any, **plain: Any) -> Options:
    """Return the options of an export, by the names of `Options`.

    Raises:
        ProviderError: The provider is unknown.
        ExportError: Another value is, or they do not go together.
        InputError: `static_axes` are no mapping from names to sizes of 1 or more.
    """
    plain["provider"] = short_name(plain.get("provider", Options.provider))
    options = Options(**plain, tolerance=_tolerance(tolerance), static_axes=_static_axes(static_axes))
    choices = (("lowering", LOWERINGS), ("precision", PRECISIONS))
    for name, known in choices:
        if (value := getattr(options, name)) not in known:
            raise ExportError(f"`{name}` must be one of {known}. Received: {value!r}.{instead(value)}")
    _check_opset(options)
    _check_calibration(options)
    return _for_target(options)


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


def _for_target(options: Options) -> Options:
    """Return options by which a file runs on the onnxruntime that its target names, if that is one.

    Raises:
        ExportError: The target is no release, is too old, or does not go together with what else is asked.
    """
    target = options.target
    if target is None or target == STANDARD:
        return options
    first = LOWEST_ONNXRUNTIME[TRACED_OPSET]
    if not isinstance(target, str) or not _RELEASE.fullmatch(target) or release_of(target) < release_of(first):
        raise ExportError(
            f"`target` must be {STANDARD!r} or the lowest onnxruntime that the file shall run on, {first} or newer, "
            f"such as '1.19'. Received: {target!r}."
        )

    def needed(opset: int | None, lowering: str) -> str:
        form = BATCHED if (lowering, options.written_for) == (ADAPTIVE, FOR_CUDA) else lowering
        return lowest_onnxruntime(opset or FUSED_OPSET, [form])

    def runs(opset: int | None, lowering: str) -> bool:
        return release_of(needed(opset, lowering)) <= release_of(target)

    opset, lowering = options.opset, options.lowering
    if opset is None and lowering != "fused" and not runs(None, lowering):
        opset = TRACED_OPSET
    if lowering == ADAPTIVE and not runs(opset, lowering):
        lowering = PORTABLE
    if not runs(opset, lowering):
        asked = f"opset={opset}" if lowering == PORTABLE else f"lowering={lowering!r}"
        raise ExportError(
            f"`{asked}` needs onnxruntime {needed(opset, lowering)} or newer. Received: target={target!r}. Leave out "
            "one of them."
        )
    most = None
    if options.opset is None:
        most = max(each for each in OPSETS if release_of(LOWEST_ONNXRUNTIME[each]) <= release_of(target))
    return replace(options, opset=opset, lowering=lowering, most=most)


def _check_calibration(options: Options) -> None:
    """Check that arrays for int8 are given where they are used, and a limit where it is measured."""
    given, limit = options.calibration, options.limit
    if given is not None and (options.precision != "int8" or options.provider != "cpu"):
        raise ExportError(
            "`calibration` is for `precision='int8'` and `provider='cpu'`. Received: "
            f"precision={options.precision!r}, provider={options.provider!r}."
        )
    if limit is None:
        return
    if not _is_tolerance(limit) or limit == 0:
        raise ExportError(f"`limit` must be a number above 0. Received: {limit!r}.")
    if given is None:
        raise ExportError("`limit` is measured on `calibration`, the arrays that int8 is calibrated on. Give both.")


def _static_axes(given: Any) -> dict[str, int]:
    """Return sizes by the names of axes; whether the model has such axes is seen later."""
    given = {} if given is None else given
    if not isinstance(given, Mapping):
        raise InputError(f"`static_axes` must be a mapping from names to sizes. Received: {type(given).__name__}.")
    for name, size in given.items():
        whole = isinstance(size, numbers.Integral) and not isinstance(size, bool)  # NumPy's integers too
        if not isinstance(name, str) or not whole or size < 1:
            raise InputError(
                f"`static_axes` must map names of axes to integers of 1 or more. Received: {name!r}: {size!r}."
            )
    return {name: int(size) for name, size in given.items()}


def _tolerance(given: Any) -> dict[str, float]:
    """Return {"relative", "absolute"}: of a number it is the relative one and a tenth of it the absolute one."""
    if given is None:
        return dict(NO_MORE)
    pair = given if isinstance(given, tuple | list) else (given, _tenth(given))
    if len(pair) != 2 or not all(map(_is_tolerance, pair)):
        raise ExportError(
            f"`tolerance` must be a number of 0 or more, or two as (relative, absolute). Received: {given!r}."
        )
    return {"relative": float(pair[0]), "absolute": float(pair[1])}


def _tenth(value: Any) -> Any:
    return float(value) / 10 if _is_tolerance(value) else value


def _is_tolerance(value: Any) -> bool:
    number = isinstance(value, numbers.Real) and not isinstance(value, bool)  # NumPy's numbers are Real too
    return number and math.isfinite(value) and value >= 0
