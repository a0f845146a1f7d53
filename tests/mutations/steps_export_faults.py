"""Faults in the export of decoders in steps: what is refused, what a step is fed, and states that grow."""

from .fault import fault

STEPS_EXPORT_FAULTS = (
    fault(
        "a step gets samples for all it takes",
        "    if not unknown:\n        return None\n    fed",
        "    unknown = [spec.name for spec in signature.inputs]\n    fed",
        "test_in_steps -k cannot_be_drawn",
    ),
    fault(
        "a sample of a state is the first",
        "STEPS = 3  #",
        "STEPS = 1  #",
        "test_in_steps -k some_steps",
    ),
    fault(
        "what the encoder takes goes before what it gives",
        "    if name in outputs_of(layer.encoder):\n",
        "    if name in outputs_of(layer.encoder) and name not in inputs_of(layer.encoder):\n",
        "test_in_steps -k goes_before",
    ),
    fault(
        "a beam goes in steps",
        "if len(layers) == 1 and isinstance(layers[0], GreedyDecoding):",
        "if len(layers) == 1 and isinstance(layers[0], Decoding):",
        "test_in_steps -k beam",
    ),
    fault(
        "layers around a decoder are left out",
        "if len(layers) == 1 and isinstance(layers[0], GreedyDecoding):",
        "if isinstance(layers[0], GreedyDecoding):",
        "test_in_steps -k around",
    ),
    fault(
        "a loop that answers otherwise is written",
        "    report.raise_if_failed()\n    if options.strict:\n        report.raise_if_warned()\n    (folder",
        "    if options.strict:\n        report.raise_if_warned()\n    (folder",
        "test_in_steps -k leave_nothing",
    ),
    fault(
        "what int8 does to an answer is called rounding",
        "    found, refused = cases_of(model, outputs, given)\n",
        "    found, refused = cases_of(model, outputs, given, options.precision)\n",
        "test_in_steps -k not_called_rounding",
    ),
    fault(
        "an answer with infinities is none",
        'if any(np.isnan(array).any() for array in case.outputs.values() if array.dtype.kind == "f"):',
        'if not all(np.isfinite(array).all() for array in case.outputs.values() if array.dtype.kind == "f"):',
        "test_in_steps -k infinities",
    ),
    fault(
        "an answer with NaN is one",
        'if any(np.isnan(array).any() for array in case.outputs.values() if array.dtype.kind == "f"):',
        "if False:",
        "test_in_steps -k infinities",
    ),
    fault(
        "an encoder takes any batch beside a step that takes one",
        "return {BATCH: layer.batch} if is_free and layer.batch is not None else None",
        "return None",
        "test_in_steps -k one_batch",
    ),
    fault(
        "weights of a step are told of where a decoder does not give them",
        "if name in layer._names.outputs}",
        "}",
        "test_collected_weights -k there_are_none",
    ),
    fault(
        "weights of several heads are laid out as those of one",
        "if w in found and len(layer.step.output[name].shape) == 2}",
        "if w in found}",
        "test_collected_weights -k heads",
    ),
    fault(
        "an option for one bundle is passed over",
        "    if given := [name for name, value in asked.items() if value]:",
        "    if given := [name for name, value in asked.items() if value and name != 'report']:",
        "test_in_steps -k for_one_bundle",
    ),
    fault(
        "names with dots are refused",
        '[A-Za-z][A-Za-z0-9_.]*", spec.name)',
        '[A-Za-z][A-Za-z0-9_]*", spec.name)',
        "test_signature -k dots",
    ),
    fault(
        "a dot and an underscore are two names",
        'return name.lower().replace(".", "_")',
        "return name.lower()",
        "test_signature -k refused_by_name",
    ),
    fault(
        "a cache is never empty",
        "if growing := growing_axes(axes.shapes, result.cases):",
        "if growing := set():",
        "test_growing_caches",
    ),
    fault(
        "what is as long as an input grows",
        "before.shape[axis] >= after.shape[axis]",
        "before.shape[axis] > after.shape[axis]",
        "test_growing_caches -k holds_an_input",
    ),
    fault(
        "what is longer grows, whatever it holds",
        'return np.array_equal(before, _first(after, axis, before.shape[axis]), equal_nan=before.dtype.kind == "f")',
        "return True",
        "test_growing_caches -k holds_an_input",
    ),
    fault(
        "one case in which it grows will do",
        "any(all(_is_behind(case, name, output, axis) for case in cases)",
        "any(any(_is_behind(case, name, output, axis) for case in cases)",
        "test_growing_caches -k holds_an_input",
    ),
    fault(
        "a full state gets one step more",
        "- source.room",
        "",
        "test_filled_states",
    ),
    fault(
        "there must be room where nothing is appended",
        "room=int(is_appended_to)",
        "room=1",
        "test_filled_states",
    ),
    fault(
        "a length of a state counts along another axis",
        "if source.lengths and not source.room]",
        "if source.lengths]",
        "test_filled_states",
    ),
)
