"""Exports of random models: outputs match Keras on inputs that are no golden cases.

`scripts/test tests/export_model/test_fuzz.py --dist load` runs them. `--fuzz N` sets the number of models, and
`--random-seed N` another seed.
"""

import tempfile
from pathlib import Path

import fuzz_models
import keras
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from keras_attn_export import ExportError, export_model
from keras_attn_export._lowering_names import LOWERINGS

SHARDS = 8
MATCHED = "matched"
TOLERANCE = {"rtol": 2e-5, "atol": 2e-6}

pytestmark = pytest.mark.nightly


@pytest.mark.parametrize("shard", range(SHARDS))
def test_drawn_models_match(shard, random_seed, request):
    models_per_shard = -(-request.config.getoption("--fuzz") // SHARDS)
    results: list[str] = []

    @seed(random_seed * SHARDS + shard)
    @settings(
        max_examples=models_per_shard,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )
    @given(plan=fuzz_models.PLANS)
    def check(plan):
        results.append(check_plan(plan, random_seed + len(results)))

    check()
    assert len(results) >= models_per_shard * 0.9, "hypothesis ran out of models"
    refused = [result for result in results if result != MATCHED]
    assert not refused, "the exporter supports every random model"


def check_plan(plan, number):
    """Export the model of a plan, and return `MATCHED` or the error of the export."""
    keras.backend.clear_session()
    keras.utils.set_random_seed(number)
    model = fuzz_models.build_planned_model(plan)
    lowering = LOWERINGS[number % len(LOWERINGS)]
    with tempfile.TemporaryDirectory() as folder:
        try:
            bundle = export_model(model, Path(folder) / "bundle", lowering=lowering)
        except ExportError as error:
            return f"{lowering}: {plan}: {error}"
        rng = np.random.default_rng(number)
        for _ in range(3):
            inputs = fuzz_models.draw_inputs(plan, model, rng)
            outputs = bundle.run(inputs)
            expected = keras.tree.flatten(model(inputs, training=False))
            for output, tensor in zip(outputs.values(), expected, strict=True):
                array = np.asarray(tensor)
                scale = max(1.0, float(np.abs(array).max(initial=0)))
                np.testing.assert_allclose(output / scale, array / scale, **TOLERANCE)
            # padding can be poisoned if all queries share the lengths, and no encoder reads the keys
            if plan.lengths == "B" and plan.encoder is None:
                for name, array in bundle.run(fuzz_models.poison_padding(inputs)).items():
                    np.testing.assert_array_equal(array, outputs[name])
    return MATCHED
