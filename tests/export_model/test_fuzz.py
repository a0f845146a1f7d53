"""Models drawn at random are exported, and match Keras on inputs the export has not seen.

`scripts/test tests/export_model/test_fuzz.py --dist load` runs them; `--fuzz N` sets the number of models, and
`--random-seed N` draws others.
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
    draws = -(-request.config.getoption("--fuzz") // SHARDS)
    seen: list[str] = []

    @seed(random_seed * SHARDS + shard)
    @settings(
        max_examples=draws,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )
    @given(plan=fuzz_models.plans)
    def check(plan):
        seen.append(check_plan(plan, random_seed + len(seen)))

    check()
    assert len(seen) >= draws * 0.9, "hypothesis ran out of models"
    refused = [each for each in seen if each != MATCHED]
    assert not refused, "nothing that is drawn here is beyond the exporter"


def check_plan(plan, number):
    """Return `MATCHED`, or how the export was refused."""
    keras.backend.clear_session()
    keras.utils.set_random_seed(number)
    model = fuzz_models.build(plan)
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
            for ours, theirs in zip(outputs.values(), expected, strict=True):
                theirs = np.asarray(theirs)
                scale = max(1.0, float(np.abs(theirs).max(initial=0)))
                np.testing.assert_allclose(ours / scale, theirs / scale, **TOLERANCE)
            if plan.lengths == "B" and plan.encoder is None:  # all queries share the lengths, and nobody else reads
                for name, array in bundle.run(fuzz_models.poison(inputs)).items():
                    np.testing.assert_array_equal(array, outputs[name])
    return MATCHED
