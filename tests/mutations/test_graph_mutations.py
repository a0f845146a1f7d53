"""Mutations of `nox -s mutate-graphs`: every kind, each in a copy of the graph, also in branches and weights."""

import numpy as np
import onnx.parser
from onnx.numpy_helper import to_array

from mutations.graph_mutations import apply_mutation, list_mutations

KINDS = {"exchanged", "dropped", "swapped", "comparison", "mask", "bias", "axes", "constant", "weight", "off by one"}


MODEL = """
<ir_version: 8, opset_import: ["": 18]>
small (float[4, 4] x, bool flag) => (float y, float either)
<float[4, 4] kernel = {1, 2, 3, 4, -5, 6, 7, 8, 9, -10, 11, 12, 13, 14, -15, 16}, float[4] bias = {0.1, -0.2, 0.3, 0.4},
 int64[1] start = {1}, int64[1] end = {3}>
{
    h = Gemm <alpha = 0.5> (x, kernel, bias)
    below = Less (h, bias)
    chosen = Where (below, h, bias)
    turned = Transpose <perm = [1, 0]> (chosen)
    shares = Softmax <axis = -1> (turned)
    part = Slice (shares, start, end)
    either = If (flag) <
        then_branch = one () => (float then) { then = Relu (h) },
        else_branch = two () => (float else) { else = Tanh (h) }
    >
    y = Mul (part, part)
}
"""


def test_mutations_of_every_kind_change_the_copy_and_not_the_original():
    original = onnx.parser.parse_model(MODEL)
    before = original.SerializeToString()
    mutations = list_mutations(original, np.random.default_rng(1))
    assert {mutation.kind for mutation in mutations} == KINDS
    mutants = [apply_mutation(original, mutation).SerializeToString() for mutation in mutations]
    assert original.SerializeToString() == before
    assert before not in mutants
    assert len(set(mutants)) == len(mutations)


def test_branches_and_weights_have_mutations():
    original = onnx.parser.parse_model(MODEL)
    mutations = {mutation.description: mutation for mutation in list_mutations(original, np.random.default_rng(1))}
    assert any("Relu to Abs at then" in description for description in mutations)
    mutant = apply_mutation(original, mutations["2 % more of bias (4,)"])
    before, after = ({t.name: to_array(t) for t in model.graph.initializer} for model in (original, mutant))
    np.testing.assert_allclose(after["bias"], before["bias"] * 1.02, rtol=1e-6)
    np.testing.assert_array_equal(after["kernel"], before["kernel"])
