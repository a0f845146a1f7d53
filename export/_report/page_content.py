"""Content of a report: the values that the template shows, and the data that its scripts read."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._bundle.untrusted_input import golden_cases
from .._format.manifest import Manifest
from .._format.names import Case
from .._format.parity_report import ParityReport
from .._report import model_facts
from .attention_maps import attention_maps
from .examples import batch_size, example_of, probability_outputs
from .labels import checked_labels
from .live_data import form_data, outputs_data, replay_data

SAMPLES = "samples"
MAX_EXAMPLES = 16


@dataclass(frozen=True)
class PageContent:
    """The content of a page.

    Values in `context` are records and lists, no mappings: in Jinja, the lookup of a missing key in a mapping returns
    the mapping's method of that name, as for an input named `keys`.
    """

    folder: Path
    manifest: Manifest
    context: dict[str, Any]  # names that the template reads
    data: dict[str, Any]  # data that the scripts read, as JSON


def page_content(
    folder: Path,
    manifest: Manifest,
    report: ParityReport,
    user_case: Case | None,
    *,
    labels: Mapping[str, Any] | None,
    live: bool,
) -> PageContent:
    """Collect the content of a page about a bundle whose files were checked.

    The examples are a user's inputs with the outputs of the ONNX model, or else samples of the export or generated
    inputs. A live page replays the golden cases and runs the model.
    """
    checked = checked_labels(manifest, labels)
    cases = golden_cases(folder, manifest)
    shown = user_case or next((case for case in cases if case.name == SAMPLES), cases[0])
    probabilities = probability_outputs(manifest, checked, [*cases, shown])
    example_count = batch_size(shown, manifest)
    indices = range(min(example_count, MAX_EXAMPLES))
    examples = [example_of(index, shown, manifest, checked, probabilities) for index in indices]
    maps = attention_maps(shown, manifest, examples)
    data: dict[str, Any] = {"maps": maps}
    if live:
        typed = shown if examples else cases[0]  # a case of no rows fills no field
        texts = dict(example_of(0, typed, manifest, checked, probabilities).inputs)
        data["inputs"] = form_data(manifest, checked, typed, texts)
        data["outputs"] = outputs_data(manifest, checked, probabilities)
        data["cases"] = replay_data(cases, manifest.parity["tolerance"])
    context = {
        "model": manifest.model,
        "folder": shlex.quote(folder.resolve().name),
        "version": manifest.versions.get("keras-attn", ""),
        "report": report,
        "summary": report.summary(),
        "case_name": shown.name,
        "is_user_case": user_case is not None,
        "examples": examples,
        "example_count": example_count,
        "map_count": len(maps),
        "ports": model_facts.ports(manifest),
        "facts": model_facts.facts(folder, manifest, report),
        "layers": model_facts.attention_layers(manifest),
        "case_count": len(cases),
        "proof": model_facts.proof(manifest, report),
        "comparisons": model_facts.comparisons(report),
        "refused_cases": list(report.refused.items()),
        "hashes": [*manifest.sha256.items(), ("manifest.json, without its last entry", manifest.manifest_sha256)],
    }
    return PageContent(folder, manifest, context, data)
