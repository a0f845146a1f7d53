"""Mutate exported ONNX graphs, and count the mutants with other outputs that pass the parity check."""

import argparse
import json
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import onnx
from attention_loop_models import NestedLoop, build_loop_model
from decoder_export_models import bias_of_pairs, bias_of_positions, step_of_a_growing_state, step_of_fixed_capacity
from decoding_models import END, START, build_attention_models
from hard_to_check_models import MODELS as PROOF_MODELS
from hard_to_check_models import MutationModel, perturb_weights
from zoo import ZOO

from keras_attn.decoding import greedy
from keras_attn_export import export_model
from keras_attn_export._format.names import MODEL
from keras_attn_export._golden_cases.dynamic_axes import name_axes
from keras_attn_export._golden_cases.input_generators import choose_generators
from keras_attn_export._golden_cases.trial_runs import InputSampler, TrialRuns
from keras_attn_export._options import Options
from keras_attn_export._signature.signature import build_signature

from .graph_mutations import apply_mutation, list_mutations
from .mutant_outcomes import BROKEN, MutantChecker, refresh_manifest

DRAWS = 6  # random inputs on which outputs of a mutant are compared
ZOO_MODELS = (  # one for each kind of operators
    *("bidirectional_lstm", "causal_language_model", "diffusion_denoiser", "gan_generator", "mixture_of_experts"),
    *("shuffle_net", "siamese_network", "transformer_classifier", "unet", "wave_net"),
)
DECODER_MODELS = (bias_of_pairs, bias_of_positions, step_of_a_growing_state, step_of_fixed_capacity)
MODELS = (
    PROOF_MODELS
    | {build.__name__: MutationModel(build) for build in DECODER_MODELS}
    | {name: MutationModel(ZOO[name].build_model) for name in ("input_feeding_decoder", "spectrogram_decoder")}
    | {name: MutationModel(ZOO[name].build_model, ZOO[name].precisions) for name in ZOO_MODELS}
    | {
        # With seed 33 of the weights, rows end after 1, 2, 3 and 4 steps.
        "greedy_decoder": MutationModel(
            lambda: greedy(*build_attention_models(33), start=START, end=END, max_length=4, outputs=["weights"])
        ),
        "attention_in_loops": MutationModel(lambda: build_loop_model(NestedLoop), lowering="adaptive"),
    }
)
MIN_CHANGES = {"float32": 1e-3, "float16": 0.1, "int8": 0.3}  # shares of the scale of an output

Verdict = dict[str, Any]  # model, precision, kind, what (description), outcome, change and share of a mutant


def main(argv: Sequence[str] | None = None) -> int:
    """Check mutants, and return 1 if a float32 mutant with other outputs passes the parity check, else 0."""
    parser = argparse.ArgumentParser(prog="nox -s mutate-graphs", description=__doc__)
    parser.add_argument("--each", dest="limit", type=int, default=150, metavar="N", help="mutants of each model (150)")
    parser.add_argument("--only", nargs="+", choices=MODELS, metavar="MODEL", help="these models alone")
    parser.add_argument("--precisions", nargs="+", default=["float32", "float16", "int8"], metavar="P")
    parser.add_argument("--seed", type=int, default=0, help="of weights, inputs and the choice of faults (0)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all outcomes to FILE")
    options = parser.parse_args(argv)
    verdicts = []
    for name in options.only or MODELS:
        for precision in filter(options.precisions.__contains__, ("float32", *MODELS[name].precisions)):
            model_verdicts = list(check_mutants(name, precision, options.limit, options.seed))
            verdicts += model_verdicts
            print(f"{name}, {precision}: {_format_counts(model_verdicts)}", flush=True)
            for verdict in (verdict for verdict in model_verdicts if verdict["outcome"] == "passed"):
                print("    passed: {kind}, {what}: changes {change:.1e}, {share:.1e} of the limit".format(**verdict))
    for precision in options.precisions:
        print(f"{precision}: {_format_counts([row for row in verdicts if row['precision'] == precision])}")
    if options.json:
        options.json.write_text(json.dumps(verdicts, indent=1), encoding="utf-8")
    return int(any((verdict["outcome"], verdict["precision"]) == ("passed", "float32") for verdict in verdicts))


def _format_counts(verdicts: list[Verdict]) -> str:
    counts = Counter(verdict["outcome"] for verdict in verdicts)
    return f"{len(verdicts)} mutants: " + ", ".join(f"{count} {outcome}" for outcome, count in counts.most_common())


def check_mutants(name: str, precision: str, limit: int, seed: int) -> Iterator[Verdict]:
    """Export a model, and yield the verdicts of at most `limit` mutants of its file."""
    keras.utils.set_random_seed(seed)
    model = perturb_weights(MODELS[name].build(), seed)
    with tempfile.TemporaryDirectory() as scratch:
        lowering = MODELS[name].lowering
        bundle = export_model(model, Path(scratch) / "bundle", lowering=lowering, precision=precision, progress=False)
        shutil.rmtree(bundle.path / "saved_model")  # the check does not read it
        refresh_manifest(bundle.path, bundle.manifest)
        original = onnx.load(bundle.path / MODEL)
        checker = MutantChecker(bundle, _draw_inputs(name, model, seed + 1))
        outcome, change, _ = checker.check(original.SerializeToString(), min_change=0.0)
        assert (outcome, change) == ("passed", 0.0), "the original file must pass"
        for mutation in list_mutations(original, np.random.default_rng(seed))[:limit]:
            try:
                result = checker.check(apply_mutation(original, mutation).SerializeToString(), MIN_CHANGES[precision])
            except (ValueError, IndexError, TypeError):
                result = BROKEN
            values = (name, precision, mutation.kind, mutation.description, *result)
            yield dict(zip(("model", "precision", "kind", "what", "outcome", "change", "share"), values, strict=True))


def _draw_inputs(name: str, model: keras.Model, seed: int) -> list[dict[str, np.ndarray]]:
    """Return inputs by the model's own generator, or other numbers with the sizes and lengths of the golden cases."""
    if (generate := MODELS[name].draw_new_inputs) is not None:
        rng = np.random.default_rng(seed)
        return [generate(rng) for _ in range(DRAWS)]
    signature = build_signature(model)
    sampler = InputSampler(signature.inputs, choose_generators(signature, {}))
    axes = name_axes(signature, {}, TrialRuns(signature, sampler), Options())
    sampler._rng = np.random.default_rng(seed)
    return [sampler.draw(axes.get_axis_sizes(sizes)) for sizes in (axes.base, axes.distinct) for _ in range(DRAWS // 2)]


if __name__ == "__main__":
    sys.exit(main())
