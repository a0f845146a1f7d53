"""Puts faults into exported ONNX graphs, and tells which of those that change an answer are verified as a match."""

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
from attention_loop_models import Nested, build_loop_model
from decoder_export_models import bias_of_pairs, bias_of_positions, step_of_a_growing_state, step_of_fixed_capacity
from decoding_models import END, START, build_attention_models
from hard_to_check_models import MODELS as PROOF_MODELS
from hard_to_check_models import ProofModel, perturb_weights
from zoo import ZOO

from keras_attn.decoding import greedy
from keras_attn_export import export_model
from keras_attn_export._format.names import MODEL
from keras_attn_export._golden_cases.dynamic_axes import name_axes
from keras_attn_export._golden_cases.input_generators import choose_generators
from keras_attn_export._golden_cases.trial_runs import InputSampler, TrialRuns
from keras_attn_export._options import Options
from keras_attn_export._signature.signature import build_signature

from .graph_mutations import graph_faults, mutated
from .mutant_outcomes import BROKEN, Judge, seal_again

FRESH = 6  # drawn inputs to see a change on
OF_THE_ZOO = (  # one of each kind of operators
    *("bidirectional_lstm", "causal_language_model", "diffusion_denoiser", "gan_generator", "mixture_of_experts"),
    *("shuffle_net", "siamese_network", "transformer_classifier", "unet", "wave_net"),
)
OF_DECODERS = (bias_of_pairs, bias_of_positions, step_of_a_growing_state, step_of_fixed_capacity)
MODELS = (
    PROOF_MODELS
    | {build.__name__: ProofModel(build) for build in OF_DECODERS}
    | {name: ProofModel(ZOO[name].model) for name in ("input_feeding_decoder", "spectrogram_decoder")}
    | {name: ProofModel(ZOO[name].model, ZOO[name].precisions) for name in OF_THE_ZOO}
    | {
        # with these weights rows end after 1, 2, 3 and 4 steps
        "greedy_decoder": ProofModel(
            lambda: greedy(*build_attention_models(33), start=START, end=END, max_length=4, outputs=["weights"])
        ),
        "attention_in_loops": ProofModel(lambda: build_loop_model(Nested), lowering="adaptive"),
    }
)
VISIBLE = {"float32": 1e-3, "float16": 0.1, "int8": 0.3}  # of what stands beside a number

Verdict = dict[str, Any]  # what became of a mutant: its model, precision, kind, what, outcome, change and share


def main(argv: Sequence[str] | None = None) -> int:
    """Runs mutants; 0 when no visible one in float32 was verified as a match."""
    parser = argparse.ArgumentParser(prog="nox -s mutate-graphs", description=__doc__)
    parser.add_argument("--each", type=int, default=150, metavar="N", help="mutants of each model at most (150)")
    parser.add_argument("--only", nargs="+", choices=MODELS, metavar="MODEL", help="these models alone")
    parser.add_argument("--precisions", nargs="+", default=["float32", "float16", "int8"], metavar="P")
    parser.add_argument("--seed", type=int, default=0, help="of weights, inputs and the choice of faults (0)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where all verdicts go")
    given = parser.parse_args(argv)
    verdicts = []
    for name in given.only or MODELS:
        for precision in (each for each in ("float32", *MODELS[name].precisions) if each in given.precisions):
            found = list(verdicts_of(name, precision, given.each, given.seed))
            verdicts += found
            print(f"{name}, {precision}: {_counted(found)}", flush=True)
            for each in (each for each in found if each["outcome"] == "passed"):
                print("    passed: {kind}, {what}: changes {change:.1e}, {share:.1e} of the limit".format(**each))
    for precision in given.precisions:
        print(f"{precision}: {_counted([each for each in verdicts if each['precision'] == precision])}")
    if given.json:
        given.json.write_text(json.dumps(verdicts, indent=1), encoding="utf-8")
    return int(any((each["outcome"], each["precision"]) == ("passed", "float32") for each in verdicts))


def _counted(verdicts: list[Verdict]) -> str:
    counts = Counter(each["outcome"] for each in verdicts)
    return f"{len(verdicts)} mutants: " + ", ".join(f"{count} {outcome}" for outcome, count in counts.most_common())


def verdicts_of(name: str, precision: str, most: int, seed: int) -> Iterator[Verdict]:
    """Exports a model and yields what becomes of up to so many mutants of its file."""
    keras.utils.set_random_seed(seed)
    model = perturb_weights(MODELS[name].build(), seed)
    with tempfile.TemporaryDirectory() as scratch:
        lowering = MODELS[name].lowering
        bundle = export_model(model, Path(scratch) / "bundle", lowering=lowering, precision=precision, progress=False)
        shutil.rmtree(bundle.path / "saved_model")  # which is no part of what is judged
        seal_again(bundle.path, bundle.manifest)
        right = onnx.load(bundle.path / MODEL)
        judge = Judge(bundle, _fresh_inputs(name, model, seed + 1))
        outcome, change, _ = judge.judge(right.SerializeToString(), visible=0.0)
        assert (outcome, change) == ("passed", 0.0), "the file without a fault must pass"
        for fault in graph_faults(right, np.random.default_rng(seed))[:most]:
            try:
                judged = judge.judge(mutated(right, fault).SerializeToString(), VISIBLE[precision])
            except (ValueError, IndexError, TypeError):
                judged = BROKEN
            values = (name, precision, fault.kind, fault.what, *judged)
            yield dict(zip(("model", "precision", "kind", "what", "outcome", "change", "share"), values, strict=True))


def _fresh_inputs(name: str, model: keras.Model, seed: int) -> list[dict[str, np.ndarray]]:
    """Inputs of the model's own; or of sizes and lengths that the golden cases have too, and other numbers."""
    if (own := MODELS[name].fresh) is not None:
        rng = np.random.default_rng(seed)
        return [own(rng) for _ in range(FRESH)]
    signature = build_signature(model)
    sampler = InputSampler(signature.inputs, choose_generators(signature, {}))
    axes = name_axes(signature, {}, TrialRuns(signature, sampler), Options())
    sampler._rng = np.random.default_rng(seed)
    return [sampler.draw(axes.get_axis_sizes(sizes)) for sizes in (axes.base, axes.distinct) for _ in range(FRESH // 2)]


if __name__ == "__main__":
    sys.exit(main())
