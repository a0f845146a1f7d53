"""Faults in the export, in the bundle and in the command line."""

from .fault import fault

_CASES = (
    fault(
        "each axis has one other size",
        "for other in (1, 2, beyond) if symbol == BATCH else (step, beyond):",
        "for other in (2,) if symbol == BATCH else (beyond,):",
        "test_golden_cases -k swept",
    ),
    fault(
        "lengths do not vary",
        "for pattern in LENGTHS:",
        'for pattern in ("mixed",):',
        "test_golden_cases -k swept",
    ),
    fault(
        "the last key of the padding is not poisoned",
        "beyond = np.arange(arrays[padded].shape[1]) >= np.asarray(inputs[name])",
        "beyond = np.arange(arrays[padded].shape[1]) > np.asarray(inputs[name])",
        "test_golden_cases -k poisoned",
    ),
    fault(
        "large values are not large",
        "inputs[name].dtype.type(100) for name in drawn",
        "inputs[name].dtype.type(1) for name in drawn",
        "test_golden_cases -k poisoned",
    ),
    fault(
        "no length is zero",
        '"zero": lambda keys: [0],',
        '"zero": lambda keys: [1],',
        "test_input_sources -k patterns",
    ),
    fault(
        "axes are named by another number",
        'f"{name}_length" if axis == 1 else',
        'f"{name}_length" if axis == 2 else',
        "test_golden_cases -k named_by_number",
        "test_golden_cases",
    ),
    fault(
        "axes that must agree are not seen to",
        "for hint in hints[:MOST_HINTS]:",
        "for hint in hints[:0]:",
        "test_axis_groups -k as_many",
    ),
    fault(
        "sizes that are mentioned beside a failure are one axis",
        "(after != said and hint.clear)",
        "hint.clear",
        "test_axis_groups -k changes_nothing",
    ),
    fault(
        "multiples are swept one by one",
        "step = axes.multiples.get(symbol, 1)",
        "step = 1",
        "test_dynamic_axes -k multiples",
    ),
    fault(
        "an axis at its largest size is taken for static",
        "    if size > 2:\n        yield -1\n",
        "",
        "test_axis_groups -k limit",
    ),
    fault(
        "a layer that seldom drops its input passes",
        "for _ in range(RUNS_OF_RANDOM if drawn else 1):",
        "for _ in range(1):",
        "test_trial_runs -k now_and_then",
    ),
    fault(
        "an output axis of one size has the name of an axis of one size",
        "if seen == sizes and len(set(sizes)) > 1]",
        "if seen == sizes]",
        "test_dynamic_axes -k one_size",
    ),
    fault(
        "an output axis is taken for any that is as large in one case",
        "same = [symbol for symbol, sizes in varied.items() if seen == sizes and",
        "same = [symbol for symbol, sizes in varied.items() if seen[0] == sizes[0] and",
        "test_golden_cases -k output",
    ),
    fault(
        "the model is exported as in training",
        "keras.tree.flatten(model(packed, training=False))",
        "keras.tree.flatten(model(packed, training=True))",
        "test_signature -k training",
    ),
    fault(
        "a lookup is drawn beyond its table",
        "rng.integers(0, min(ranges), shape)",
        "rng.integers(0, min(ranges) + 1, shape)",
        "test_input_sources -k embedding",
    ),
)

_TRACING = (
    fault(
        "a choice is a product",
        'HANDLERS: dict[str, Handler] = {"SelectV2": (_where, []), ',
        "HANDLERS: dict[str, Handler] = {",
        "test_to_onnx -k where",
    ),
    fault(
        "a layer that counts its calls is frozen",
        'if node.op.startswith("Assign") and node.op.endswith("VariableOp"):',
        'if node.op == "AssignVariableOp":',
        "test_to_onnx -k variable",
    ),
    fault(
        "the file is not checked in full",
        "    if not check:\n        return\n    try:",
        "    if check:\n        return\n    try:",
        "test_onnx_file -k invalid",
    ),
    fault(
        "large weights overlap in their file",
        "offset += -(-array.nbytes // _PAGE) * _PAGE",
        "offset += array.nbytes // _PAGE * _PAGE",
        "test_large_weights",
        "test_lower -k outside",
    ),
    fault(
        "small weights go into a file of their own",
        "for n, v in enumerate(model.variables) if _bytes(v) >= LARGE}",
        "for n, v in enumerate(model.variables)}",
        "test_large_weights",
    ),
    fault(
        "a constant argument keeps its place among the inputs",
        "if x in call.constants else next(given) for x in call.shapes]",
        "if x in call.constants else next(given) for x in reversed(call.shapes)]",
        "test_lower -k constants",
        "test_lower",
    ),
    fault(
        "a stranger's file may hold code",
        "keras.saving.load_model(model, compile=False, safe_mode=safe_mode)",
        "keras.saving.load_model(model, compile=False, safe_mode=False)",
        "test_export_model -k lambda",
    ),
    fault(
        "a subclass keeps its random weights",
        "        model.load_weights(file)\n",
        "        pass\n",
        "test_export_model -k file",
        "test_other_backends -k weights",
        "test_fuzz -m fuzz",
    ),
)

_LOWERINGS = (
    fault(
        "no length is below one",
        "lengths = Clip (flat_lengths, zero_scalar, Tk_scalar)",
        "lengths = Clip (flat_lengths, one_scalar, Tk_scalar)",
        "test_bodies -k numbers",
    ),
    fault(
        "ragged counts one key more where there is a mask too",
        "in_length = Less (positions, lengths_column)\n",
        "in_length = LessOrEqual (positions, lengths_column)\n",
        "test_bodies -k numbers",
        "test_bodies",
    ),
    fault(
        "fused takes an example without keys for one with some",
        "has_length = Greater (lengths, zero)",
        "has_length = GreaterOrEqual (lengths, zero)",
        "test_bodies -k numbers",
        equivalent="onnxruntime 1.31 gives zeros for a length of 0; the selection is for releases that do not",
    ),
    fault(
        "fused does not hide masked keys",
        "hidden_keys = Where (seen_column, keys, nothing)",
        "hidden_keys = Identity (keys)",
        "test_bodies -k numbers",
        "test_bodies",
        "test_export_models -k leak",
    ),
    fault(
        "the guard of additive scores lets sums overflow",
        "REACH = 80 / (2 * GROUP)",
        "REACH = 800 / (2 * GROUP)",
        "test_bodies -k beyond_reach",
    ),
    fault(
        "the guard of additive scores lets terms vanish",
        "FARTHEST = 66 / (2 * GROUP)",
        "FARTHEST = 660 / (2 * GROUP)",
        "test_bodies -k underflow",
        "test_bodies",
    ),
    fault(
        "the guard of additive scores lets rounding show",
        "HEAVIEST = 100.0",
        "HEAVIEST = 1e9",
        "test_bodies -k cancel",
        "test_bodies",
    ),
    fault(
        "the rows that fill up the last block are not dropped",
        "up_to_blocks_more = Add (Tq, blocks)",
        "up_to_blocks_more = Add (all_queries, blocks)",
        "test_bodies -k blocks",
    ),
    fault(
        "a scale that the operator does not know is written",
        'bool(np.float32(call.options["scale"]) > 0)',
        'bool(np.float32(call.options["scale"]) >= 0)',
        "test_bodies -k scales",
    ),
    fault(
        "auto keeps the slowest",
        "best = min(times, key=lambda name: times[name])",
        "best = max(times, key=lambda name: times[name])",
        "test_fastest -k fastest",
    ),
    fault(
        "auto leaves plain primitives for next to nothing",
        "MARGIN = 0.97",
        "MARGIN = 1.5",
        "test_fastest -k clearly",
    ),
    fault(
        "auto keeps what is wrong",
        "if _agree(inputs, expected, outputs, options.tolerance):",
        "if outputs:",
        "test_fastest -k wrong",
    ),
)

_PRECISION = (
    fault(
        "float16 computes scores",
        "return node.output[0] not in self._scores",
        "return True",
        "test_float16 -k scores",
    ),
    fault(
        "float16 computes squares",
        "return not squares and HALF in kinds and FULL not in kinds",
        "return HALF in kinds and FULL not in kinds",
        "test_float16 -k squares",
    ),
    fault(
        "float16 takes infinite constants",
        "if not np.all(size <= _LARGEST):",
        "if not np.all(size[np.isfinite(size)] <= _LARGEST):",
        "test_float16 -k hold",
    ),
    fault(
        "int8 has one scale a column",
        '"last_axis": np.array([-1], np.int64),',
        '"last_axis": np.array([0], np.int64),',
        "test_convert -k row",
    ),
    fault(
        "int8 hides NaN",
        'op("Add", [f"{size}_max", f"{size}_nan"], size),',
        'op("Identity", [f"{size}_max"], size),',
        "test_convert -k nan",
    ),
    fault(
        "int8 quantizes products of one column",
        "FEWEST_COLUMNS = 8",
        "FEWEST_COLUMNS = 0",
        "test_convert -k products",
        "test_convert",
    ),
    fault(
        "a loop keeps its weights in its state",
        'if node.op_type == "Loop" and node.domain in ("", "ai.onnx"):',
        'if node.op_type == "Loops" and node.domain in ("", "ai.onnx"):',
        "test_float16 -k loop",
    ),
)

_PARITY = (
    fault(
        "small outputs are measured against one",
        "scale = float(np.max(np.abs(wide_expected[finite]), initial=0.0))",
        "scale = float(np.max(np.abs(wide_expected[finite]), initial=1.0))",
        "test_verify",
    ),
    fault(
        "NaN is passed over",
        "np.array_equal(wide_expected[~finite], wide_actual[~finite], equal_nan=True)",
        "np.array_equal(wide_expected[~finite], wide_expected[~finite], equal_nan=True)",
        "test_verify -k finite",
    ),
    fault(
        "a dtype of another width passes",
        "if expected.dtype != actual.dtype:",
        "if expected.dtype.kind != actual.dtype.kind:",
        "test_verify",
    ),
    fault(
        "large values may be anything",
        "tolerance = {kind: 100 * size for kind, size in tolerance.items()}",
        "tolerance = {kind: 1e9 * size for kind, size in tolerance.items()}",
        "test_verify -k large_values",
    ),
    fault(
        "an output that nobody expected passes",
        "for name in [*expected, *(name for name in actual if name not in expected)]:",
        "for name in expected:",
        "test_verify",
    ),
    fault(
        "nothing to compare is a match",
        "return bool(self.rows) and all(row.passed for",
        "return all(row.passed for",
        "test_parity",
    ),
    fault(
        "the SavedModel may differ",
        "all(row.passed for row in (*self.rows, *self.saved_model_rows))",
        "all(row.passed for row in self.rows)",
        "test_parity",
    ),
    fault(
        "the absolute tolerance is as large as the relative one",
        "return float(value) / 10 if _is_size(value) else value",
        "return float(value) if _is_size(value) else value",
        "test_parity -k tolerance",
    ),
    fault(
        "a report holds numbers that JSON does not have",
        "        return str(content)\n    if isinstance(content, dict):",
        "        return content\n    if isinstance(content, dict):",
        "test_parity -k finite",
        "test_parity",
    ),
)

_BUNDLE = (
    fault(
        "only the first hash is compared",
        "for name in hashes if names is None else names:",
        "for name in list(hashes)[:1] if names is None else names:",
        "test_integrity -k flipped",
    ),
    fault(
        "a manifest may be written in another form",
        "altered = raw != manifest_bytes(manifest)",
        "altered = json.loads(raw) != json.loads(manifest_bytes(manifest))",
        "test_integrity -k manifest",
    ),
    fault(
        "one file may be added",
        "if extra := sorted(present - set(hashes) - {MANIFEST}):",
        "if extra := sorted(present - set(hashes) - {MANIFEST})[1:]:",
        "test_integrity -k listed",
    ),
    fault(
        "external data may lie beside the bundle",
        "        if location not in hashes:\n",
        '        if location.startswith("/") and location not in hashes:\n',
        "test_hostile -k external",
    ),
    fault(
        "a model that was replaced is run",
        ".check_model(self.path, self.manifest)  # another",
        ".MODEL  # another",
        "test_integrity -k replaced_after",
    ),
    fault(
        "an onnxruntime of an earlier minor release will do",
        "(int(found[1]), int(found[2])) <",
        "(int(found[1]), 99) <",
        "test_integrity -k onnxruntime",
    ),
    fault(
        "the lowering does not count for the lowest onnxruntime",
        'return max(releases, key=lambda release: tuple(map(int, release.split("."))))',
        "return releases[0]",
        "test_options -k lowest",
    ),
    fault(
        "pickles are read",
        "np.load(stream, allow_pickle=False)",
        "np.load(stream, allow_pickle=True)",
        "test_main -k pickle",
        "test_hostile",
    ),
    fault(
        "floats are cut to integers",
        'np.can_cast(array.dtype, dtype, casting="same_kind")',
        'np.can_cast(array.dtype, dtype, casting="unsafe")',
        "test_bundle -k kind",
    ),
    fault(
        "axes that must agree may shrink",
        "        if known != have:\n",
        "        if known < have:\n",
        "test_bundle -k disagree",
        "test_bundle",
    ),
    fault(
        "verify.py needs the onnx package",
        "import numpy as np\n\nSCHEMA_VERSION = 2\n",
        "import numpy as np\nimport onnx\n\nSCHEMA_VERSION = 2\n",
        "test_verify -k script",
    ),
    fault(
        "verify.py always succeeds",
        "    return 1 if failed else 0\n\n\nif __name__",
        "    return 0\n\n\nif __name__",
        "test_verify -k script",
    ),
    fault(
        "a provider that is absent is not missed",
        "if PROVIDERS[provider] not in available:",
        "if not available:",
        "test_verify -k cuda",
    ),
    fault(
        "one that ran is as good as another",
        "if PROVIDERS[provider] not in placed:",
        "if not placed:",
        "test_verify -k placement",
    ),
    fault(
        "a session that fell back is kept",
        "if session.get_providers()[0] != wanted:",
        "if wanted not in (*session.get_providers(), wanted):",
        "test_verify -k falls_back",
    ),
)

_STAGING = (
    fault(
        "a bundle is replaced unasked",
        "if target.exists() and not overwrite:",
        "if target.is_file() and not overwrite:",
        "test_atomic_folder -k unasked",
    ),
    fault(
        "a bundle is removed before the new one is there",
        "                _exchange(content, target)\n",
        "                shutil.rmtree(target), content.rename(target)\n",
        "test_atomic_folder -k overwriting",
        "test_faults -k whole_bundle",
        "test_kill -k line",
    ),
    fault(
        "the old bundle is not put back",
        "aside.rename(staging / _DONE if target.exists() else target)",
        "aside.rename(staging / _DONE)",
        "test_atomic_folder -k restores",
        "test_atomic_folder",
    ),
    fault(
        "a living process is swept away",
        "fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails while its process lives",
        "pass",
        "test_atomic_folder -k living",
    ),
    fault(
        "the last look at the place is left out",
        "            _refuse_existing(target, overwrite)  # it may have appeared",
        "            # it may have appeared",
        "test_atomic_folder -k meanwhile",
    ),
    fault(
        "a failed export leaves what it has made",
        "undo.callback(lambda: _remove_empty(made))",
        "undo.callback(lambda: _remove_empty([]))",
        "test_atomic_folder -k parents",
    ),
)

_COMMAND = (
    fault(
        "an error is no failure",
        "            _print_error(error, debug=arguments.debug)\n            return 1\n",
        "            _print_error(error, debug=arguments.debug)\n            return 0\n",
        "test_main -k mismatch",
        "test_main -k read",
    ),
    fault(
        "an error that is no bug is called one",
        "if not isinstance(error, ExportError | OSError):",
        "if not isinstance(error, OSError):",
        "test_main -k cannot_be_read",
    ),
    fault(
        "native messages are not hidden",
        "os.dup2(hidden.fileno(), STDERR)",
        "hidden.fileno()",
        "test_native_messages",
    ),
    fault(
        "JSON does not hold the first difference",
        'more = {"first_difference": found.to_dict()} if found else {}',
        "more: dict[str, object] = {}",
        "test_first_difference -k json",
    ),
    fault(
        "earlier outputs are overwritten piece by piece",
        'partial = target.with_name(f".{target.name}.partial")',
        "partial = target",
        "test_main -k earlier_outputs",
    ),
    fault(
        "steps are shown where nobody looks",
        "progress=False if arguments.json else None,",
        "progress=print,",
        "test_main -k json",
    ),
    fault(
        "`--unsafe` is the rule",
        "safe_mode=not arguments.unsafe,",
        "safe_mode=False,",
        "test_main -k unsafe",
    ),
)

EXPORT_FAULTS = (
    *_CASES,
    *_TRACING,
    *_LOWERINGS,
    *_PRECISION,
    *_PARITY,
    *_BUNDLE,
    *_STAGING,
    *_COMMAND,
)
