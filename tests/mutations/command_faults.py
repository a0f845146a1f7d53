"""Faults in the export as a whole and in the command line."""

from .fault import fault

COMMAND_FAULTS = (
    fault(
        "strict is not heeded",
        "    if options.strict:\n        report.raise_if_warned()\n    if options.precision",
        "    if options.precision",
        "test_export_model -k strict",
    ),
    fault(
        "a stranger's file may hold code",
        "keras.saving.load_model(model, compile=False, safe_mode=safe_mode)",
        "keras.saving.load_model(model, compile=False, safe_mode=False)",
        "test_export_model -k lambda",
    ),
    fault(
        "exports in threads do not wait",
        "with _ONE_AT_A_TIME, shown_progress",
        "with shown_progress",
        "test_export_model -k turns",
    ),
    fault(
        "only registered classes of a module are known",
        "issubclass(each, keras.layers.Layer) and each.__module__ == module.__name__",
        "issubclass(each, keras.layers.Layer) and not each",
        "test_export_command -k imported_first",
    ),
    fault(
        "an error is no failure",
        "            _print_error(error, debug=arguments.debug)\n            return 1\n",
        "            _print_error(error, debug=arguments.debug)\n            return 0\n",
        "test_verify_command -k mismatch",
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
        'partial = (target.parent if folder is None else folder) / f".{uuid.uuid4().hex}.partial"',
        "partial = target",
        "test_run_command -k earlier_outputs",
    ),
    fault(
        "steps are shown where nobody looks",
        "progress=False if arguments.json else None,",
        "progress=print,",
        "test_export_command -k json",
    ),
    fault(
        "`--unsafe` is the rule",
        "safe_mode=not arguments.unsafe,\n            strict=",
        "safe_mode=False,\n            strict=",
        "test_export_command -k unsafe",
    ),
    fault(
        "`verify --unsafe` is the rule",
        "safe_mode=not arguments.unsafe,\n            public_key=",
        "safe_mode=False,\n            public_key=",
        "test_verify_bundle -k unsafe",
    ),
    fault(
        "the lowering does not count for the lowest onnxruntime",
        'return max(releases, key=lambda release: tuple(map(int, release.split("."))))',
        "return releases[0]",
        "test_options -k lowest",
    ),
)
