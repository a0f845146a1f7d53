"""Content of a report page: variables of the template, and data of the scripts."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._bundle.untrusted_input import read_golden_cases
from .._format.manifest import Manifest
from .._format.names import Case
from .._format.parity_report import ParityReport
from .._report import model_facts
from .attention_maps import build_attention_maps
from .examples import build_example, count_examples, find_probability_outputs
from .labels import validate_labels
from .live_data import build_form_fields, describe_outputs, encode_cases

SAMPLES_CASE = "samples"
MAX_EXAMPLES = 16


@dataclass(frozen=True)
class PageContent:
    """Content of a report page."""

    folder: Path
    manifest: Manifest
    # Variables of the template: records and lists, not mappings. Jinja returns a method of a mapping if a key such as
    # `keys` is missing.
    context: dict[str, Any]
    data: dict[str, Any]  # data of the scripts, written as JSON


def collect_page_content(
    folder: Path,
    manifest: Manifest,
    report: ParityReport,
    user_case: Case | None,
    *,
    labels: Mapping[str, Any] | None,
    live: bool,
) -> PageContent:
    """Collect the content of a report page; the files of the bundle must have been checked.

    The examples are the rows of `user_case`, inputs of the user with outputs of the ONNX model; without such a case,
    samples of the export, or the first golden case. A live page replays the golden cases and runs the model.
    """
    valid_labels = validate_labels(manifest, labels)
    cases = read_golden_cases(folder, manifest)
    displayed_case = user_case or next((case for case in cases if case.name == SAMPLES_CASE), cases[0])
    probabilities = find_probability_outputs(manifest, valid_labels, [*cases, displayed_case])
    example_count = count_examples(displayed_case, manifest)
    indices = range(min(example_count, MAX_EXAMPLES))
    examples = [build_example(index, displayed_case, manifest, valid_labels, probabilities) for index in indices]
    maps = build_attention_maps(displayed_case, manifest, examples)
    data: dict[str, Any] = {"maps": maps}
    if live:
        form_case = displayed_case if examples else cases[0]  # a case without rows cannot fill the form
        texts = dict(build_example(0, form_case, manifest, valid_labels, probabilities).inputs)
        data["inputs"] = build_form_fields(manifest, valid_labels, form_case, texts)
        data["outputs"] = describe_outputs(manifest, valid_labels, probabilities)
        data["cases"] = encode_cases(cases, manifest.parity["tolerance"])
    context = {
        "model": manifest.model,
        "folder": shlex.quote(folder.resolve().name),
        "version": manifest.versions.get("keras-attn", ""),
        "report": report,
        "summary": report.summary(),
        "case_name": displayed_case.name,
        "is_user_case": user_case is not None,
        "examples": examples,
        "example_count": example_count,
        "map_count": len(maps),
        "ports": model_facts.list_ports(manifest),
        "facts": model_facts.list_facts(folder, manifest, report),
        "layers": model_facts.list_attention_layers(manifest),
        "case_count": len(cases),
        "proof": model_facts.describe_comparison(manifest, report),
        "comparisons": model_facts.list_comparisons(report),
        "refused_cases": list(report.refused.items()),
        "hashes": [*manifest.sha256.items(), ("manifest.json, without its last entry", manifest.manifest_sha256)],
    }
    return PageContent(folder, manifest, context, data)
