"""`Bundle` and `load_bundle`: an exported model that runs in onnxruntime and writes its report."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from .._errors import BundleError
from .._format.array_checks import check_arrays
from .._format.input_arrays import validate_inputs
from .._format.interruptible_session import check_provider, open_session, run_session
from .._format.manifest import Manifest
from .._format.names import MODEL, Case
from .._format.parity_report import ParityReport
from .._format.providers import short_name
from .._format.session_options import build_session_options, validate_config
from .bundle_files import restore_bundle, validate_manifest
from .notebook_view import render_notebook_view
from .untrusted_input import REPORT_FILE, read_json

USER_CASE_NAME = "your inputs"  # shown in a report for the caller's inputs
# Signatures whose inputs need no further check. The limit bounds the memory of a service whose shapes keep changing.
MAX_ACCEPTED_SIGNATURES = 1024


@dataclass(frozen=True)
class Bundle:
    """An exported model, ready to run.

    Attributes:
        path: The folder.
        manifest: The content of `manifest.json`; see `docs/export.md` for its keys.

    Example:
        >>> bundle = load_bundle("bundle")  # doctest: +SKIP
        >>> bundle.run({"queries": queries, "keys": keys, "values": values, "valid_lens": lens})  # doctest: +SKIP
    """

    path: Path
    manifest: dict[str, Any]
    _sessions: dict[Any, Any] = field(default_factory=dict, compare=False)
    _accepted_signatures: set[Any] = field(default_factory=set, compare=False)
    _session_lock: Any = field(default_factory=threading.Lock, compare=False)

    def __repr__(self) -> str:
        """Return path, model, precision, opset and the numbers of inputs and outputs in one line."""
        entries = self.entries
        details = f"model={entries.model!r}, precision={entries.precision!r}, opset={entries.opset}"
        return f"Bundle({str(self.path)!r}, inputs={len(entries.inputs)}, outputs={len(entries.outputs)}, {details})"

    def _repr_html_(self) -> str | None:
        try:
            return render_notebook_view(self.path, self.entries, self.report)
        except (BundleError, OSError):  # the files were removed; a notebook then shows `repr`
            return None

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle the bundle without its sessions, which a copy opens again."""
        return Bundle, (self.path, self.manifest)

    @cached_property
    def entries(self) -> Manifest:
        """The parsed manifest, for this package; users read `manifest`."""
        return Manifest.from_dict(self.manifest)

    @cached_property
    def report(self) -> ParityReport:
        """The parity report of the export."""
        file = self.path / REPORT_FILE
        try:
            return ParityReport.from_dict(read_json(file))
        except OSError as error:
            raise BundleError(f"Cannot read {file}: {error.strerror}.") from error
        except ValueError as error:
            raise BundleError(f"{file} is not a parity report: {error}. Export the model again.") from error

    def session(
        self,
        provider: str = "cpu",
        *,
        threads: int | None = None,
        config: Mapping[str, str] | None = None,
        **options: Any,
    ) -> Any:
        """Return the onnxruntime session for a provider and options, opened once and shared by all threads.

        `Bundle.run` uses the session without options. For another session, call the `run` of the session.

        Args:
            provider: Execution provider, as in `export_model`.
            threads: The number of threads for one run, `intra_op_num_threads`; `None` leaves it to onnxruntime, which
                uses all cores.
            config: Config entries of the `onnxruntime.SessionOptions` by key, such as
                `{"session.intra_op.allow_spinning": "0"}`.
            **options: Attributes of the `onnxruntime.SessionOptions`, such as `enable_cpu_mem_arena=False`.

        Raises:
            InputError: The option is unknown to onnxruntime, or its value is not allowed.
            ProviderError: The provider is missing, or onnxruntime fell back to another one.
            BundleError: onnxruntime cannot load the model.
        """
        provider = short_name(provider)
        if threads is not None:
            options["intra_op_num_threads"] = threads
        entries = validate_config(config)
        key = provider, repr(sorted(options.items())), repr(sorted(entries.items()))
        with self._session_lock:
            if key not in self._sessions:
                settings = build_session_options(check_provider(provider), options, entries)
                self._sessions[key] = open_session(self.path / MODEL, provider, session_options=settings)
            return self._sessions[key]

    def run(self, inputs: Any, *, provider: str = "cpu") -> dict[str, np.ndarray]:
        """Run the ONNX file.

        Args:
            inputs: Arrays by input name, or a list in the order of the inputs, or the array itself if there is only one
                input. Shapes and dtypes as in the manifest. Other widths of integers and floats, and integers for
                floats, are converted; floats are never converted to integers.
            provider: Execution provider, as in `export_model`.

        Returns:
            The outputs by name, with the shapes and dtypes of the manifest.

        Raises:
            InputError: A name, dtype or shape does not match the manifest; the message names the input and the reason.
            ProviderError: The provider is missing, or onnxruntime fell back to another one.
            ExportError: onnxruntime fails on these inputs, as with an index outside an embedding.
        """
        return run_session(self.session(provider), self._validate_inputs(inputs))

    def _validate_inputs(self, inputs: Any) -> Mapping[str, np.ndarray]:
        if type(inputs) is not dict:
            return validate_inputs(self.entries, inputs)
        # The check takes longer than a small model. A dict with names, dtypes and shapes of an earlier run skips it.
        signature = tuple(
            (name, array.dtype, array.shape) if type(array) is np.ndarray else None for name, array in inputs.items()
        )
        if signature in self._accepted_signatures:
            return inputs
        validated = validate_inputs(self.entries, inputs)
        is_converted = any(validated[name] is not array for name, array in inputs.items())
        if not is_converted and len(self._accepted_signatures) < MAX_ACCEPTED_SIGNATURES:
            self._accepted_signatures.add(signature)
        return validated

    def write_report(
        self,
        path: str | Path | None = None,
        *,
        inputs: Mapping[str, Any] | None = None,
        live: bool = False,
        labels: Mapping[str, Sequence[str]] | None = None,
        provider: str = "cpu",
    ) -> Path:
        """Write a self-contained HTML file with examples, attention, signature and the comparison with Keras.

        Args:
            path: The file to write; `None` for NAME.html in the parent folder of the bundle NAME. An earlier report is
                replaced, any other file is not.
            inputs: Arrays by input name; the page shows their predictions and attention. `None` for the samples of the
                export, or generated inputs.
            live: Whether the page contains the model and onnxruntime-web, about 6 MB. Such a page replays the golden
                cases in the browser, and has a form that runs the model. onnxruntime-web must be installed by npm, in
                the current folder or a parent of it.
            labels: A string for each id, such as a vocabulary, by the name of the input or output that holds the ids.
                For an output of class scores with the same number of classes, the page shows the best classes with
                their probabilities or scores.
            provider: Execution provider for `inputs`, as in `export_model`.

        Returns:
            The file.

        Raises:
            InputError: `inputs` do not fit the model, or `labels` name an input or output that it does not have.
            BundleError: A file of the bundle cannot be read.
            ExportError: The file cannot be written, would replace a file of another kind, or is a live page and
                onnxruntime-web is not installed.
        """
        from .._report.page_content import collect_page_content
        from .._report.write_report import check_report_path, default_report_path, write_page

        page = default_report_path(self.path) if path is None else Path(path)
        check_report_path(page)
        case = None if inputs is None else self._run_user_case(inputs, provider)
        content = collect_page_content(self.path, self.entries, self.report, case, labels=labels, live=live)
        return write_page(page, content, live=live)

    def _run_user_case(self, inputs: Mapping[str, Any], provider: str) -> Case:
        """Return a case of a user's inputs and the outputs of the ONNX model."""
        validated = validate_inputs(self.entries, inputs)
        outputs = self.run(validated, provider=provider)
        check_arrays(f"{self.path / MODEL} answers", "output", outputs, self.entries.outputs)
        return Case(USER_CASE_NAME, {name: np.asarray(array) for name, array in validated.items()}, outputs)


def load_bundle(path: str | Path) -> Bundle:
    """Open a bundle after checking its manifest and the hash of every file.

    If an export was killed while it replaced the bundle, the old bundle is restored first, with a warning.

    Args:
        path: The folder.

    Returns:
        The bundle, ready to run.

    Raises:
        BundleError: The folder is missing, incomplete or altered, is not a bundle, is of an unknown schema version, or
            needs a newer onnxruntime than is installed.
    """
    folder = Path(path)
    restore_bundle(folder)
    return Bundle(folder, validate_manifest(folder))
