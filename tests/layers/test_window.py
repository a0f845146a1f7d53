"""Invalid values of `window`: error message."""

import pytest
from layer_contract import draw_normal

from keras_attn import DotProductAttention


@pytest.mark.parametrize("window", [3, (1,), (1, 2, 3), (-1, 0), (1.0, 0), (True, 0), "12"])
def test_window_other_than_a_pair_is_rejected(window):
    x = draw_normal(2, 6, 3)
    with pytest.raises(ValueError, match=r"`window` must be a pair \(left, right\)"):
        DotProductAttention()(x, x, x, window=window)
