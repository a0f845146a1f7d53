"""Puts faults into exported ONNX graphs, and tells which of those that change an answer are verified as a match."""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
import onnx
from proof_models import MODELS as PROOF_MODELS
from proof_models import ProofModel, perturbed
from zoo import ZOO

from keras_attn_export import export_model
from keras_attn_export._model.dynamic_axes import name_axes
from keras_attn_export._model.input_sources import sources
from keras_attn_export._model.signature import model_signature
from keras_attn_export._model.trial_runs import Drawer
from keras_attn_export._standalone import verify

from .decoder_models import DECODERS
from .graph_faults import graph_faults, mutated
from .graph_judge import seal_again

OUTCOMES = ("caught", "passed", "invisible", "broken")
FRESH = 6  # drawn inputs to see a change on
OF_THE_ZOO = (  # one of each kind of operators
    *("bidirectional_lstm", "causal_language_model", "diffusion_denoiser", "gan_generator", "mixture_of_experts"),
    *("shuffle_net", "siamese_network", "transformer_classifier", "unet", "wave_net"),
)
MODELS = PROOF_MODELS | DECODERS | {name: ProofModel(ZOO[name].model, ZOO[name].precisions) for name in OF_THE_ZOO}
ENDLESS = 20  # seconds after which the loop of a mutant is taken to go on for ever


class Verdict(NamedTuple):
    """What became of a mutant; `broken` is one that onnxruntime refuses, or crashes on, or runs for ever."""

    model: str
    precision: str
    kind: str
    what: str
    outcome: str
    change: float
    share: float


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
        for precision in ("float32", *MODELS[name].precisions):
            if precision in given.precisions:
                found = list(verdicts_of(name, precision, given.each, given.seed))
                verdicts += found
                print(f"{name}, {precision}: {_counted(found)}", flush=True)
                for each in (each for each in found if each.outcome == "passed"):
                    share = f"changes {each.change:.1e}, {each.share:.1e} of the limit"
                    print(f"    passed: {each.kind}, {each.what}: {share}")
    for precision in ("float32", "float16", "int8"):
        print(f"{precision}: {_counted([each for each in verdicts if each.precision == precision])}")
    if given.json:
        given.json.write_text(json.dumps([each._asdict() for each in verdicts], indent=1), encoding="utf-8")
    return int(any(each.outcome == "passed" and each.precision == "float32" for each in verdicts))


def _counted(verdicts: list[Verdict]) -> str:
    counts = Counter(each.outcome for each in verdicts)
    return f"{len(verdicts)} mutants: " + ", ".join(f"{counts[outcome]} {outcome}" for outcome in OUTCOMES)


def verdicts_of(name: str, precision: str, most: int, seed: int) -> Iterator[Verdict]:
    """Exports a model and yields what becomes of up to so many mutants of its file."""
    keras.utils.set_random_seed(seed)
    model = perturbed(MODELS[name].build(), seed)
    with tempfile.TemporaryDirectory() as scratch:
        lowering = MODELS[name].lowering
        bundle = export_model(model, Path(scratch) / "bundle", lowering=lowering, precision=precision, progress=False)
        shutil.rmtree(bundle.path / "saved_model")  # which is no part of what is judged
        seal_again(bundle.path, bundle.manifest)
        fresh = enumerate(_fresh_inputs(name, model, seed + 1))
        cases = [verify.Case(str(index), inputs, {}) for index, inputs in fresh]
        verify.save_cases(Path(scratch) / "fresh.npz", cases)
        right = onnx.load(bundle.path / verify.MODEL)
        judge = Judge(bundle.path, precision)
        for fault in graph_faults(right, np.random.default_rng(seed))[:most]:
            try:
                judged = judge.judge(mutated(right, fault).SerializeToString())
            except (ValueError, IndexError, TypeError):
                judged = "broken", 0.0, 0.0
            yield Verdict(name, precision, fault.kind, fault.what, *judged)
        judge.end()


class Judge:
    """A process that runs mutants, as onnxruntime ends its own on some: the next mutant then gets a new one."""

    def __init__(self, bundle: Path, precision: str) -> None:
        self._bundle, self._precision = bundle, precision
        self._mutant = bundle.parent / "mutant.onnx"
        self._printed = (bundle.parent / "printed.txt").open("w")
        self._process: Any = None

    def judge(self, mutant: bytes) -> tuple[str, float, float]:
        """The outcome of a mutant, how much it changes, and how much of the limit where it passed."""
        self._mutant.write_bytes(mutant)
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "mutations.graph_judge", str(self._bundle), self._precision],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._printed,
                text=True,
            )
            if self._process.stdout.readline() != "ready\n":
                raise RuntimeError(f"No mutant can be judged: {Path(self._printed.name).read_text()[-2000:]}")
        self._process.stdin.write(f"{self._mutant}\n")
        self._process.stdin.flush()
        timer = threading.Timer(ENDLESS, self._process.kill)
        timer.start()
        answer = self._process.stdout.readline()
        timer.cancel()
        if not answer:
            self.end()
            return "broken", 0.0, 0.0
        return tuple(json.loads(answer))

    def end(self) -> None:
        """Ends the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def _fresh_inputs(name: str, model: keras.Model, seed: int) -> list[dict[str, np.ndarray]]:
    """Inputs of the model's own; or of sizes and lengths that the golden cases have too, and other numbers."""
    if (own := MODELS[name].fresh) is not None:
        rng = np.random.default_rng(seed)
        return [own(rng) for _ in range(FRESH)]
    signature = model_signature(model, None)
    made = sources(model, signature, {})
    drawer = Drawer(model, signature, made)
    axes = name_axes(signature, {}, drawer)
    drawer = Drawer(model, signature, made)
    drawer._rng = np.random.default_rng(seed)
    return [drawer.inputs(axes.sizes(sizes)) for sizes in (axes.base, axes.apart) for _ in range(FRESH // 2)]


if __name__ == "__main__":
    sys.exit(main())
