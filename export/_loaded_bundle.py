"""A bundle: a folder with the SavedModel, the ONNX file, the manifest, and the proof that they agree with Keras."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from ._bundle.arrays import checked_inputs
from ._bundle.folder import REPORT, read_manifest
from ._bundle.parity import ParityReport
from ._bundle.session_options import checked_config, session_options
from ._errors import BundleError
from ._report.content import content_of
from ._report.write_report import beside, check_page, write_page
from ._standalone import verify
from ._standalone.verify import Manifest

SHAPES = 1024  # of inputs that a bundle remembers to have taken


@dataclass(frozen=True)
class Bundle:
    """An exported model, ready to run.

    Attributes:
        path: The folder.
        manifest: What `manifest.json` says; see `docs/export.md` for its keys.

    Example:
        >>> bundle = load_bundle("bundle")  # doctest: +SKIP
        >>> bundle.run({"queries": queries, "keys": keys, "values": values, "valid_lens": lens})  # doctest: +SKIP
    """

    path: Path
    manifest: dict[str, Any]
    _sessions: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)
    _taken: set[Any] = field(default_factory=set, repr=False, compare=False)
    _opening: Any = field(default_factory=threading.Lock, repr=False, compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle without the sessions; the copy opens its own."""
        return Bundle, (self.path, self.manifest)

    @cached_property
    def entries(self) -> Manifest:
        """The manifest by attribute, for this package."""
        return Manifest.of(self.manifest)

    @cached_property
    def report(self) -> ParityReport:
        """The parity report of the export."""
        file = self.path / REPORT
        try:
            return ParityReport.of(verify.read_json(file)[1])
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
        """Return the onnxruntime session on a provider, opened once for its options and shared by all threads.

        `run` uses the one without options; run another one by its own `run`.

        Args:
            provider: Where to run, as in `export_model`.
            threads: How many threads work on one run, `intra_op_num_threads`; `None` leaves it to onnxruntime, which
                takes all cores.
            config: Config entries of the `onnxruntime.SessionOptions` by key, such as
                `{"session.intra_op.allow_spinning": "0"}`.
            **options: Attributes of the `onnxruntime.SessionOptions`, such as `enable_cpu_mem_arena=False`.

        Raises:
            InputError: onnxruntime has no such option, or does not take its value.
            ProviderError: The provider is absent, or onnxruntime fell back to another one.
            BundleError: The model on disk is no longer the one that was loaded.
        """
        provider = verify.short_name(provider)
        if threads is not None:
            options["intra_op_num_threads"] = threads
        checked = checked_config(config)
        asked = options or checked
        key = (provider, repr(sorted(options.items())), repr(sorted(checked.items()))) if asked else provider
        with self._opening:
            if key not in self._sessions:
                made = session_options(verify.check_provider(provider), options, checked) if asked else None
                session = verify.open_session(self.path / verify.MODEL, provider, session_options=made)
                verify.check_model(self.path, self.manifest)  # another bundle may have been put there since
                self._sessions[key] = session
            return self._sessions[key]

    def run(self, inputs: Any, *, provider: str = "cpu") -> dict[str, np.ndarray]:
        """Run the ONNX file.

        Args:
            inputs: Arrays by input name, or in the order of the inputs, one alone as it is; in the dtypes and shapes of
                the manifest. Integers and floats of another width are converted where no value changes kind.
            provider: Where to run, as in `export_model`.

        Returns:
            The outputs by name.

        Raises:
            InputError: A name, dtype or shape does not fit; the message says which and how.
            ProviderError: As for `session`.
            ExportError: onnxruntime fails on these inputs, as with an index outside an embedding.
        """
        return verify.run_session(self.session(provider), self._checked(inputs))

    def _checked(self, inputs: Any) -> Mapping[str, np.ndarray]:
        """Return the inputs as the file takes them; a dict of arrays like those of a run before is taken as it is."""
        if type(inputs) is not dict:
            return checked_inputs(self.entries, inputs)
        like = tuple(
            [(name, each.dtype, each.shape) if type(each) is np.ndarray else None for name, each in inputs.items()]
        )
        if like in self._taken:
            return inputs
        checked = checked_inputs(self.entries, inputs)
        if len(self._taken) < SHAPES and all(checked[name] is array for name, array in inputs.items()):
            self._taken.add(like)
        return checked

    def write_report(
        self,
        path: str | Path | None = None,
        *,
        inputs: Mapping[str, Any] | None = None,
        live: bool = False,
        labels: Mapping[str, Sequence[str]] | None = None,
        provider: str = "cpu",
    ) -> Path:
        """Write one HTML file that shows the model, its proof and its attention, and loads nothing.

        Args:
            path: The file to write; `None` for one beside the bundle, with its name. An earlier report is replaced,
                any other file is not.
            inputs: Arrays by input name whose attention is shown before that of the golden cases.
            live: Whether the page takes the model and onnxruntime-web along, some 6 MB: it then replays the golden
                cases in its reader's browser, and has a form that runs the model. onnxruntime-web must be installed, by
                npm, in this folder or one above it.
            labels: What ids are called, a string for each, by the name of an input or output, such as a vocabulary.
                Outputs that are scores of so many classes are labelled with the largest.
            provider: Where `inputs` run, as in `export_model`.

        Returns:
            The file.

        Raises:
            InputError: `inputs` do not fit the model, or `labels` name what it does not have.
            BundleError: The bundle on disk is no longer the one that was loaded.
            ExportError: The file cannot be written, something else is in its place, or what a live page needs is
                missing.
        """
        page = beside(self.path) if path is None else Path(path)
        check_page(page)
        verify.check_model(self.path, self.manifest, verify.CASES)
        given = None if inputs is None else checked_inputs(self.entries, inputs)
        run = partial(self.run, provider=provider)
        content = content_of(self.path, self.entries, self.report, run, inputs=given, live=live, labels=labels)
        return write_page(page, content, live=live)


def load_bundle(path: str | Path) -> Bundle:
    """Open a bundle after checking its manifest and every file.

    Raises:
        BundleError: The folder is missing, incomplete or altered, holds something else, is of an unknown schema
            version, or needs a newer onnxruntime than is installed.
    """
    return Bundle(Path(path), read_manifest(Path(path)))
