"""Write a decoder in steps: a bundle of its encoder, one of its step, and the proof of the loop around them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras

from keras_attn._decoding_greedy import GreedyDecoding
from keras_attn._decoding_layer import Decoding
from keras_attn._decoding_names import batches_of, inputs_of

from .._bundle.bundle import REPORT, Bundle
from .._bundle.parity import ParityReport, compared
from .._bundle.steps_manifest import ENCODER, ENCODER_INPUT, KIND, STEP, seal_in_steps
from .._errors import InputError, UnsupportedModelError
from .._model.coverage import coverage_of
from .._model.dynamic_axes import BATCH
from .._model.float32_clone import float32_clone, half_policies
from .._model.golden_cases import Cases
from .._model.reference import cases_of, whole_samples
from .._model.signature import Signature, model_signature
from .._model.trial_runs import outputs_of
from .._options import PRECISIONS, Options
from .._progress import Progress
from .._standalone import verify
from .._standalone.verify import Arrays, Case
from .feeds import feeds_of, start_of, step_samples, written_names

FEW = 5  # cases of whole answers, where each operation of each step is run by itself

ExportPart = Callable[..., Bundle]


def write_in_steps(
    folder: Path,
    model: keras.Model,
    samples: Mapping[str, Any] | None,
    options: Options,
    export_part: ExportPart,
    step: Progress,
) -> None:
    """Fill the empty folder of a decoder in steps.

    Args:
        folder: The folder.
        model: What `keras_attn.decoding.greedy` made.
        samples: Arrays by input name, which are the encoder's.
        options: What was asked for.
        export_part: Exports a model to a folder; it takes `sample_inputs`, `static_axes` and `progress` too.
        step: Is told what is being done.

    Raises:
        UnsupportedModelError: The model is another, or a part of it cannot be exported.
        ParityError: An output differs from what Keras gives.
        ExportError: Any other error of the export of a part.
    """
    greedy_layer(model)
    if half_policies(model):
        step("Cloning the model to float32")
        model = float32_clone(model, samples)
    layer = greedy_layer(model)
    encoder = export_part(
        layer.encoder,
        folder / ENCODER,
        sample_inputs=samples,
        static_axes=_axes_of_step(layer),
        progress=lambda name: step(f"Encoder: {name}"),
    )
    cases = verify.load_cases(encoder.path / verify.CASES)
    step("Looking for what the step is fed")
    of_step = step_samples(layer, cases[0].inputs)
    parts = {
        ENCODER: encoder,
        STEP: export_part(
            layer.step, folder / STEP, sample_inputs=of_step, progress=lambda name: step(f"Step: {name}")
        ),
    }
    golden, converted, refused = _answers(model, encoder, cases, options, step)
    manifest = _manifest(model, layer, parts, golden, options)
    step("Running the loop in onnxruntime")
    bundle = Bundle(folder, manifest, parts)
    proof = converted or golden.cases
    answers = [bundle.generate(case.inputs, provider=options.provider) for case in proof]
    rows = compared(proof, answers, options.tolerance, options.provider)
    coverage = coverage_of(golden, converted) | {"parts": _coverage_of_parts(parts, manifest)}
    report = ParityReport(options.provider, rows, refused=refused, coverage=coverage)
    report.raise_if_failed()
    if options.strict:
        report.raise_if_warned()
    (folder / verify.CASES).parent.mkdir()
    verify.save_cases(folder / verify.CASES, proof)
    (folder / REPORT).write_text(report.to_json() + "\n", encoding="utf-8")
    seal_in_steps(folder, manifest)


def case_of_answers(name: str, model: keras.Model, samples: Mapping[str, Any], precision: str) -> Case:
    """Return what a model gives for a user's own arrays, as `case_of` does, in a time that fits a loop.

    Raises:
        UnsupportedModelError: The model is not one that `keras_attn.decoding.greedy` made.
        InputError: `samples` do not fit, or Keras has no answer to them.
    """
    greedy_layer(model)
    if half_policies(model):
        model = float32_clone(model, samples)
    signature = model_signature(model, samples)
    inputs = whole_samples(signature, samples)
    found, refused = cases_of(model, _run_by(model, signature)[0], {name: inputs}, precision)
    if not found:
        raise InputError(f"Keras itself cannot run `{model.name}` on `samples`: {refused[name]}")
    return found[0]


def greedy_layer(model: keras.Model) -> Any:
    """Return the layer in a model that `keras_attn.decoding.greedy` made.

    Raises:
        UnsupportedModelError: The model is another.
    """
    layers = [layer for layer in model.layers if not isinstance(layer, keras.layers.InputLayer)]
    if len(layers) == 1 and isinstance(layers[0], GreedyDecoding):
        return layers[0]
    beams = any(isinstance(layer, Decoding) and not isinstance(layer, GreedyDecoding) for layer in layers)
    received = "a beam search, whose loop is in one file only" if beams else f"`{model.name}`, another model"
    raise UnsupportedModelError(
        "`in_steps` (--in-steps) exports what `keras_attn.decoding.greedy` makes, with no layer around it. "
        f"Received: {received}. Export it without `in_steps`."
    )


def _axes_of_step(layer: Any) -> dict[str, int] | None:
    """Return the batch that the encoder's file must have because the step takes that one only."""
    is_free = not batches_of(inputs_of(layer.encoder))
    return {BATCH: layer.batch} if is_free and layer.batch is not None else None


def _answers(
    model: keras.Model, encoder: Bundle, cases: Sequence[Case], options: Options, step: Progress
) -> tuple[Cases, list[Case], dict[str, str]]:
    """Return whole answers of Keras to the encoder's golden inputs, and what it cannot answer, with its words.

    Between them stand the same answers with what rounding does in another precision, if one was asked for.
    """
    step("Running Keras on whole answers")
    signature = model_signature(model, None)
    outputs, is_whole = _run_by(model, signature)
    given = {case.name: case.inputs for case in (cases if is_whole else cases[:FEW])}
    found, refused = cases_of(model, outputs, given)
    is_converted = options.precision != PRECISIONS[0]
    converted = cases_of(model, outputs, given, options.precision)[0] if is_converted else []
    if not found:
        raise UnsupportedModelError(
            f"Keras itself cannot decode with `{model.name}` on any golden input: {next(iter(refused.values()))}"
        )
    axes = {spec["name"]: tuple(spec["shape"]) for spec in encoder.manifest["inputs"]}
    sizes = [
        {
            symbol: size
            for name, shape in axes.items()
            for symbol, size in zip(shape, case.inputs[name].shape, strict=True)
            if isinstance(symbol, str)
        }
        for case in found
    ]
    return Cases(axes, found, sizes, refused), converted, refused


def _run_by(model: keras.Model, signature: Signature) -> tuple[Callable[[Arrays], Arrays], bool]:
    """Return how to run a model on arrays, and whether as one: TensorFlow takes a second for some steps otherwise."""
    if keras.backend.backend() != "tensorflow":
        return outputs_of(signature), False
    import tensorflow as tf

    from .._tracing.saved_model import traced_function

    function = traced_function(model, signature, contextlib.nullcontext)

    def outputs(inputs: Arrays) -> Arrays:
        found = function({name: tf.constant(array) for name, array in inputs.items()})
        return {name: found[name].numpy() for name in signature.outputs}

    return outputs, True


def _coverage_of_parts(parts: Mapping[str, Bundle], manifest: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return what the golden cases of the parts show, but for inputs that go past the encoder: they move the step."""
    found = {name: dict(part.report.coverage or {}) for name, part in parts.items()}
    sources = [manifest["start"], *(feed["first"] for feed in manifest["feeds"])]
    past = {each["name"] for each in sources if isinstance(each, dict) and each["from"] == ENCODER_INPUT}
    of_encoder = found[ENCODER]["inputs"].items()
    found[ENCODER]["inputs"] = {name: known for name, known in of_encoder if known["moves"] or name not in past}
    return found


def _manifest(
    model: keras.Model, layer: Any, parts: Mapping[str, Bundle], golden: Cases, options: Options
) -> dict[str, Any]:
    of_encoder, of_step = (parts[name].manifest for name in (ENCODER, STEP))
    step_names = written_names(layer.step)
    signature, first = model_signature(model, None), golden.cases[0].outputs
    static = {name: tensor.shape for name, tensor in zip(signature.outputs, model.outputs, strict=True)}
    lowest = max(
        (manifest["lowest_onnxruntime"] for manifest in (of_encoder, of_step)),
        key=lambda release: tuple(map(int, release.split("."))),
    )
    return {
        "kind": KIND,
        "model": model.name,
        "inputs": of_encoder["inputs"],
        "outputs": [
            {"name": name, "dtype": str(array.dtype), "shape": list(golden.output_axes(name, static[name]))}
            for name, array in first.items()
        ],
        "multiples": of_encoder.get("multiples", {}),
        "feeds": feeds_of(layer),
        "start": start_of(layer),
        "end": layer.end,
        "max_length": layer.max_length,
        "logits": step_names[layer._names.logits],
        "collected": {name: step_names[name] for name in layer._names.outputs},
        "precision": options.precision,
        "backend": keras.backend.backend(),
        "versions": of_step["versions"],
        "lowest_onnxruntime": lowest,
        "parity": {"tolerance": dict(options.tolerance), "cases": len(golden.cases)},
    }
