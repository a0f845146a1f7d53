"""LiteRT, once called TensorFlow Lite: what the converter makes of a SavedModel, and what the file then gives."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from .._errors import ExportError, UnsupportedModelError
from .._packages import needing
from .._standalone.verify import Arrays

ENDPOINT = "serving_default"
_DTYPES = {"": "", "f32": "", "i1": " of booleans", "!tf_type.string": " of text"}  # by the converter's names


def check_litert() -> Any:
    """Return the module of LiteRT's interpreter if it is installed.

    Raises:
        ExportError: It is not.
    """
    with needing("litert", "Checking a LiteRT file"):
        from ai_edge_litert import interpreter
    return interpreter


def to_litert(saved_model: Path) -> bytes:
    """Return the content of a LiteRT file, in LiteRT's own operators and float32, made of a SavedModel.

    Raises:
        UnsupportedModelError: LiteRT has no operator for some in the model, or the converter fails.
    """
    with needing("export", "Making a LiteRT file"):
        import tensorflow as tf
    try:
        converter = tf.lite.TFLiteConverter.from_saved_model(str(saved_model), signature_keys=[ENDPOINT])
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
        content: bytes = converter.convert()
    except Exception as error:
        # whatever a stranger's SavedModel brings about, and the converter's own error, which has no public name
        raise UnsupportedModelError(_why_not(str(error))) from error
    return content


def _why_not(said: str) -> str:
    """Return in one sentence what the converter says against a model, which is a page."""
    lacking = re.findall(r"^\s+tf\.(\w+)\((?:tensor<(?:[\d?*]+x)*([\w!.]+)>)?.* -> ", said, flags=re.MULTILINE)
    if lacking and "Details:" in said:
        operators = dict.fromkeys(f"`{name}`{_DTYPES.get(of, f' of {of}')}" for name, of in lacking)
        return (
            f"LiteRT has no operator for TensorFlow's {', '.join(operators)}, and a file that takes TensorFlow's own "
            "along (Select TF ops) does not run in ai-edge-litert. Replace the layers that use them."
        )
    loops = re.findall(r'error: loc\(.*?fused\["TensorList\w+:", "([^"@]+)/[^"@/]+@.*element_shape', said)
    if loops:
        return (
            f"LiteRT cannot hold what a loop collects in steps of unknown size, as {_quoted(dict.fromkeys(loops))} "
            "does. Export the model again: with a static axis (--static batch=1) for layers that go over time, such as "
            "LSTM and GRU; with `query_block_size=None` for additive attention."
        )
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return f"TensorFlow's converter cannot make a LiteRT file of the model: {lines[0] if lines else 'it says nothing'}"


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def run_litert(content: bytes, inputs: Iterable[Arrays]) -> Iterator[Arrays | str]:
    """Yield the outputs for each of the inputs, in order, or what LiteRT says where it cannot run them.

    One interpreter is resized from one to the next, as in an application.

    Raises:
        ExportError: ai-edge-litert is not installed, or cannot load the file.
    """
    runner = _runner(content)
    for arrays in inputs:
        try:
            outputs: Arrays = runner(**arrays)
        except Exception as error:  # noqa: BLE001 - it raises RuntimeError and ValueError, and this is a result
            yield " ".join(str(error).split()) or type(error).__name__
            runner = _runner(content)  # one that has failed says so again when the next input fails
        else:
            yield outputs


def _runner(content: bytes) -> Any:
    try:
        return check_litert().Interpreter(model_content=content).get_signature_runner(ENDPOINT)
    except (ValueError, RuntimeError) as error:
        raise ExportError(f"The LiteRT file was made, but ai-edge-litert cannot load it: {error}") from error
