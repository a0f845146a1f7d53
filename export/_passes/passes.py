"""Interface of passes over ONNX graphs, and a function that runs several passes.

A pass rewrites a finished ONNX graph. Its first argument is a `TracedModel`: the pass edits the model in place,
replaces the mapping of weights if it changes weights, and returns True if it changed anything. Further arguments are
bound by `functools.partial`. A pass is one file of `_passes/`; passes that match patterns log reasons of failed
matches.

`PASSES` in `_tracing/to_onnx.py` run on the traced model with its weights; `FINAL_PASSES` in `finalize.py` run on each
file at its final opset, without weights.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial

from .._onnx.traced_model import TracedModel

Pass = Callable[[TracedModel], bool]

_LOG = logging.getLogger(__name__)


def run_passes(traced: TracedModel, passes: Sequence[Pass]) -> bool:
    """Run passes in their order, in place, and return True if any pass changed the model."""
    changes = [_run(traced, function) for function in passes]
    return any(changes)


def _run(traced: TracedModel, run: Pass) -> bool:
    is_changed = run(traced)
    function = run.func if isinstance(run, partial) else run
    _LOG.debug("Pass %s: %s", function.__name__, "changed the graph" if is_changed else "no change")
    return is_changed
