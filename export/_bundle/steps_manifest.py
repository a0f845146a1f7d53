"""A decoder in steps: a folder with two bundles, and a manifest that says which output feeds which input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .._errors import BundleError
from .._standalone import verify

KIND = "decoder in steps"
ENCODER, STEP = PARTS = ("encoder", "step")
ANSWER = ("tokens", "lengths", "scores")

# What an input of the step can be fed from.
START, TOKEN, POSITION, ZEROS = "start", "token", "position", "zeros"
ENCODER_INPUT, ENCODER_OUTPUT, STEP_OUTPUT = "encoder input", "encoder output", "step output"
NAMED = (ENCODER_INPUT, ENCODER_OUTPUT, STEP_OUTPUT)
# By what feeds an input from the second step on: what may feed it at the first.
FIRST = {
    TOKEN: (START,),
    POSITION: (POSITION,),
    STEP_OUTPUT: (ZEROS, ENCODER_INPUT, ENCODER_OUTPUT),
    ENCODER_INPUT: (ENCODER_INPUT, ENCODER_OUTPUT),
    ENCODER_OUTPUT: (ENCODER_INPUT, ENCODER_OUTPUT),
}

Manifest = Mapping[str, Any]


def is_in_steps(manifest: Mapping[str, Any]) -> bool:
    """Tell whether a manifest is that of a decoder in steps, and not of one ONNX file."""
    return manifest.get("kind") == KIND


def check_one_file(path: Path, manifest: Mapping[str, Any]) -> None:
    """Raise `BundleError` for a decoder in steps, where one ONNX file is wanted."""
    if is_in_steps(manifest):
        raise BundleError(
            f"{path} is a decoder in steps, a folder with two bundles; this takes one of them: "
            f"{' or '.join(str(path / part) for part in PARTS)}."
        )


def check_answers(path: Path, manifest: Mapping[str, Any]) -> None:
    """Raise `BundleError` unless a bundle of one ONNX file gives the answers of a decoder."""
    outputs = [spec["name"] for spec in manifest["outputs"]]
    if not set(ANSWER) <= set(outputs):
        raise BundleError(
            f"`generate` is for a decoder, which gives {list(ANSWER)}. Received: {path}, which gives {outputs}. "
            "Use `run`, or export what `keras_attn.decoding.greedy` makes."
        )


def read_either(folder: Path) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Return the manifest of a bundle, and those of its parts if it is a decoder in steps; every file is checked.

    Raises:
        BundleError: As for `load_bundle`.
    """
    parts: dict[str, dict[str, Any]] = {}

    def read(folder: Path) -> dict[str, Any]:
        parts.clear()
        if not _says_in_steps(folder):
            return verify.read_manifest(folder)
        manifest = verify.opened_manifest(folder)
        parts.update(_checked_parts(folder, manifest))
        return manifest

    return verify.while_it_stays(folder, read), parts


def _says_in_steps(folder: Path) -> bool:
    try:
        return is_in_steps(verify.opened_manifest(folder))
    except BundleError:
        return False  # what is wrong with it is said by the reader of one ONNX file


def _checked_parts(folder: Path, manifest: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Check the files of a decoder in steps, and return the manifests of its parts. No file is read twice."""
    hashes = manifest.get("sha256")
    if not isinstance(hashes, dict) or not verify.is_hashes(hashes) or verify.CASES not in hashes:
        raise _no_manifest(folder, "`sha256` must give a hash for each file, the golden cases among them")
    verify.check_names(folder, hashes)
    inner = [f"{part}/{verify.MANIFEST}" for part in PARTS]
    if missing := [name for name in inner if name not in hashes]:
        raise BundleError(f"{folder} is incomplete: {missing[0]} is missing.")
    of_parts = tuple(f"{part}/" for part in PARTS)
    verify.check_hashes(folder, hashes, [name for name in hashes if name in inner or not name.startswith(of_parts)])
    parts = {part: verify.read_manifest(folder / part) for part in PARTS}
    for part, content in parts.items():
        # a bundle lists its files, and was just checked; it must be what is listed here
        listed = {f"{part}/{name}": value for name, value in content["sha256"].items()}
        if listed != {n: v for n, v in hashes.items() if n.startswith(f"{part}/") and n not in inner}:
            raise BundleError(f"{folder / part} is not the bundle that was exported: {verify.MANIFEST} lists others.")
    if problem := _entry_problem(manifest, parts):
        raise _no_manifest(folder, problem)
    return parts


def _no_manifest(folder: Path, problem: str) -> BundleError:
    return BundleError(
        f"{folder / verify.MANIFEST} is not the manifest of a {KIND}: {problem}. Export the model again."
    )


def _entry_problem(manifest: Mapping[str, Any], parts: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Return what is wrong with the entries that the loop reads."""
    needed = ("inputs", "outputs", "parity", "feeds", "start", "end", "max_length", "logits", "collected")
    if missing := [name for name in needed if name not in manifest]:
        return f"it says nothing of {', '.join(missing)}"
    if problem := verify.specs_problem(manifest):
        return problem
    there = {
        ENCODER_INPUT: _names(parts[ENCODER], "inputs"),
        ENCODER_OUTPUT: _names(parts[ENCODER], "outputs"),
        STEP_OUTPUT: _names(parts[STEP], "outputs"),
    }
    if manifest["inputs"] != parts[ENCODER]["inputs"]:
        return "`inputs` must be those of the encoder"
    if problem := _feeds_problem(manifest["feeds"], _names(parts[STEP], "inputs"), there):
        return problem
    start, end, limit = (manifest[name] for name in ("start", "end", "max_length"))
    if not _is_token(start) and not _is_source(start, there, (ENCODER_INPUT, ENCODER_OUTPUT)):
        return "`start` must be a token, or name what the encoder takes or gives"
    if end is not None and not _is_token(end):
        return "`end` must be a token or null"
    if not _is_token(limit) or limit < 1:
        return "`max_length` must be a number of 1 or more"
    collected = manifest["collected"]
    if not isinstance(collected, dict) or not all(name in there[STEP_OUTPUT] for name in collected.values()):
        return "`collected` must name outputs of the step"
    if sorted([*ANSWER, *collected]) != sorted(_names(manifest, "outputs")):
        return f"`outputs` must be {', '.join(ANSWER)} and what is `collected`"
    if manifest["logits"] not in there[STEP_OUTPUT]:
        return "`logits` must name an output of the step"
    return None


def _feeds_problem(feeds: Any, inputs: Sequence[str], there: Mapping[str, Sequence[str]]) -> str | None:
    if not isinstance(feeds, list) or not all(isinstance(feed, dict) for feed in feeds):
        return "`feeds` must be a list"
    if sorted(str(feed.get("input")) for feed in feeds) != sorted(inputs):
        return f"`feeds` must say of each input of the step what feeds it: {', '.join(inputs)}"
    for feed in feeds:
        then = feed.get("then")
        if not _is_source(then, there, tuple(FIRST)) or not _is_source(feed.get("first"), there, FIRST[then["from"]]):
            return f"`feeds` must say what feeds `{feed['input']}` first, and then"
        if then["from"] in (ENCODER_INPUT, ENCODER_OUTPUT) and then != feed["first"]:
            return f"what the encoder gives for `{feed['input']}` must be the same at each step"
    return None


def _is_token(value: Any) -> bool:
    return type(value) is int and -(2**31) <= value < 2**31


def _is_source(source: Any, there: Mapping[str, Sequence[str]], allowed: Sequence[str]) -> bool:
    if not isinstance(source, dict) or source.get("from") not in allowed:
        return False
    if source["from"] == ZEROS:
        shape = source.get("shape")
        return isinstance(shape, list) and all(type(size) is int and size >= 0 for size in shape)
    return source["from"] not in NAMED or source.get("name") in there[source["from"]]


def _names(manifest: Mapping[str, Any], kind: str) -> list[str]:
    return [spec["name"] for spec in manifest[kind]]


def seal_in_steps(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Hash every file and write the manifest: the last step of writing a decoder in steps."""
    files = sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file())
    hashes = {name: verify.sha256(folder / name) for name in files}
    content = {"schema_version": verify.SCHEMA_VERSION, **manifest, "sha256": hashes}
    (folder / verify.MANIFEST).write_bytes(verify.manifest_bytes(content))
