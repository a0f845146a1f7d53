"""The folder of a model as a server reads it, written from a bundle."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from .._bundle.atomic_folder import staged_folder
from .._bundle.folder import is_bundle
from .._errors import BundleError, ExportError, ProviderError
from .._loaded_bundle import Bundle, load_bundle
from .._places import check_place, is_within
from . import mlserver_layout, tfserving_layout, triton_layout

_SERVERS = {"triton": triton_layout, "tfserving": tfserving_layout, "mlserver": mlserver_layout}
TARGETS = tuple(_SERVERS)
SERVED = ("cpu", "cuda")  # providers by which servers were seen to run a bundle, or are told how

# what is safe in a path, in an address and in a shell, for every server
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")


@dataclass(frozen=True)
class Layout:
    """What was written.

    Attributes:
        folder: The folder of the model, within that of all models.
        target: Which server reads it.
        server: The server's name.
        model: What the model is called there.
        files: The files in the folder.
        notes: What whoever sends requests should know.
        command: What starts the server.
    """

    folder: Path
    target: str
    server: str
    model: str
    files: tuple[str, ...]
    notes: tuple[str, ...]
    command: str


def write_layout(
    path: str | Path, folder: str | Path, *, target: str, name: str | None = None, provider: str = "cpu"
) -> Layout:
    """Write a model into the repository that a server reads, beside the models that are there.

    The model's own folder appears whole or not at all. Every file that is copied is hashed once more.

    Args:
        path: The bundle.
        folder: The repository, the folder of all models.
        target: `"triton"`, `"tfserving"` or `"mlserver"`.
        name: What the model is called; `None` for the name in the manifest.
        provider: `"cpu"` or `"cuda"`: where Triton and MLServer run it.

    Raises:
        BundleError: As for `load_bundle`, or the place cannot be written.
        UnsupportedModelError: The server lacks a dtype of the model.
        ExportError: The name will not do, something is there already, or an argument is unknown.
        ProviderError: onnxruntime, by which it is seen whether requests may be merged, is not installed.
    """
    if target not in _SERVERS:
        raise ExportError(f"`target` must be one of {list(TARGETS)}. Received: {target!r}.")
    if provider not in SERVED:
        raise ProviderError(f"`provider` must be one of {list(SERVED)}. Received: {provider!r}.")
    server, bundle = _SERVERS[target], load_bundle(path)
    model = _checked_name(bundle, name)
    repository = Path(os.path.abspath(folder))
    place = repository / model
    _check_place(place, bundle)
    with staged_folder(place, overwrite=False) as staged:
        notes = server.fill(staged, bundle, model, provider)
        files = sorted(file.relative_to(staged).as_posix() for file in staged.rglob("*") if file.is_file())
    command = server.command(repository, model)
    return Layout(place, target, server.SERVER, model, tuple(files), tuple(notes), command)


def _checked_name(bundle: Bundle, name: str | None) -> str:
    model = bundle.entries.model if name is None else name
    if not isinstance(model, str) or not _NAME.fullmatch(model):
        raise ExportError(
            f"A server calls a model by letters, digits, `_`, `.` and `-`, of which `.` and `-` do not come first, and "
            f"by 128 of them at most. Received: {model!r}. Give another name (--name)."
        )
    return model


def _check_place(place: Path, bundle: Bundle) -> None:
    repository = place.parent
    if is_within(repository, bundle.path) or is_bundle(repository):
        raise BundleError(f"{repository} is a bundle, which holds only what its manifest lists. Choose another place.")
    said = (
        f"{place} already exists; it will not be replaced, as a server may be reading it. Remove it, or give the "
        "model another name (--name)."
    )
    check_place(place, lambda _: said, in_a_folder=False)
