"""The layers of the bundles as numbers alone: what they score by, their sizes, and their weights. NumPy alone."""

import zlib
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]

ADDITIVE, DOT, BILINEAR, GAUSSIAN, COSINE = "additive", "dot", "bilinear", "gaussian", "cosine"


@dataclass(frozen=True)
class Kind:
    """One kind of layer.

    Attributes:
        score: What its scores are.
        Dq, Dk, Dv: The sizes of one query, key and value.
        U: Hidden units of additive scores.
        normalizer: What makes weights of scores.
        heads: Heads of queries and of keys, of a multi-head layer.
        K: The size of a query, a key and a value in one head.
        Do: The size of its output.
    """

    score: str
    Dq: int
    Dk: int
    Dv: int
    U: int = 0
    normalizer: str = "softmax"
    heads: tuple[int, int] | None = None
    K: int = 0
    Do: int = 0

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "heads": None if self.heads is None else list(self.heads)}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "Kind":
        heads = content["heads"]
        return cls(**{**content, "heads": None if heads is None else (heads[0], heads[1])})

    def weights(self) -> Arrays:
        """Random weights, the same at each call; kernels leave unit size as it is, so that no number grows large."""
        rng = np.random.default_rng(zlib.crc32(repr(self).encode()))
        return {name: _drawn(rng, name, shape) for name, shape in self._shapes().items()}

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        if self.heads is not None:
            H, G = self.heads
            kernels = {
                "W_q": (self.Dq, H * self.K),
                "W_k": (self.Dk, G * self.K),
                "W_v": (self.Dv, G * self.K),
                "W_o": (H * self.K, self.Do),
            }
            return kernels | {f"{name}_bias": (shape[1],) for name, shape in kernels.items()}
        return {
            ADDITIVE: {"W_q": (self.Dq, self.U), "W_k": (self.Dk, self.U), "w_v": (self.U, 1)},
            DOT: {},
            BILINEAR: {"W": (self.Dq, self.Dk)},
            GAUSSIAN: {"bandwidth": ()},
            COSINE: {"temperature": ()},
        }[self.score]


def _drawn(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> np.ndarray:
    if shape == ():
        return np.float32(rng.uniform(0.5, 1.5)).reshape(())
    size = 0.5 if len(shape) == 1 else 3 * shape[0] ** -0.5 if name == "w_v" else shape[0] ** -0.5
    return (size * rng.standard_normal(shape)).astype("float32")


# Sizes of the contract are small, since the oracle is slow; those of heads are a multiple of 8, as kernels want them.
CONTRACT = {
    "additive": Kind(ADDITIVE, 4, 7, 6, U=8),
    "dot": Kind(DOT, 8, 8, 6),
    "multi_head": Kind(DOT, 6, 7, 5, heads=(4, 4), K=8, Do=9),
    "grouped": Kind(DOT, 6, 7, 5, heads=(4, 2), K=8, Do=9),
    "gaussian": Kind(GAUSSIAN, 3, 3, 6),
    "cosine": Kind(COSINE, 5, 5, 6),
    "bilinear": Kind(BILINEAR, 4, 7, 6),
    "sparsemax": Kind(DOT, 4, 4, 6, normalizer="sparsemax"),
    "sigmoid": Kind(DOT, 4, 4, 6, normalizer="sigmoid"),
}
TIMED = {
    "additive U256": Kind(ADDITIVE, 128, 128, 128, U=256),
    "additive U512": Kind(ADDITIVE, 128, 128, 128, U=512),
    "dot D64": Kind(DOT, 64, 64, 64),
    "multi-head 8x64": Kind(DOT, 512, 512, 512, heads=(8, 8), K=64, Do=512),
    "multi-head 8x64 causal": Kind(DOT, 512, 512, 512, heads=(8, 8), K=64, Do=512),
}
