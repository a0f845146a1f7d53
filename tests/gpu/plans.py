"""Which bundles there are: for the contract each kind of layer in each form, and those that are timed."""

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .kinds import CONTRACT as CONTRACT_KINDS
from .kinds import TIMED, Kind
from .masks import MASKS

CONTRACT, TIMING = "contract", "timing"
PORTABLE = "portable"
WITH_AND_WITHOUT_WEIGHTS = ("additive", "dot", "multi_head")
WITH_WEIGHTS = ("gaussian", "sparsemax", "sigmoid")
HALF_KINDS = ("additive", "dot", "multi_head")
HALF_FORMS = (PORTABLE,)  # in the others attention stays float32
HALF_TIMED = ("dot D64", "multi-head 8x64", "multi-head 8x64 causal")
QUICK = {  # kind, form, precision, whether weights are returned
    ("additive", PORTABLE, "float32", True),
    ("additive", "batched", "float32", False),
    ("dot", "fused", "float32", False),
    ("multi_head", "batched", "float32", False),
    ("dot", PORTABLE, "float16", False),
    ("dot D64", PORTABLE, "float32", False),
    ("dot D64", "batched", "float32", False),
}
QUICK_MASKS = ("all", "lengths", "mask_of_pairs", "causal")


@dataclass(frozen=True)
class Plan:
    """One bundle.

    Attributes:
        use: `CONTRACT` or `TIMING`.
        layer: The name of its kind of layer.
        form: The lowering that is asked for.
        precision: `"float32"` or `"float16"`.
        weights: Whether the layer returns its weights too.
        masks: The masks of its outputs.
    """

    use: str
    layer: str
    form: str
    precision: str
    weights: bool
    masks: tuple[str, ...]

    @property
    def name(self) -> str:
        half = [] if self.precision == "float32" else [self.precision]
        parts = [self.use, self.layer.replace(" ", "_"), *(["weights"] if self.weights else []), self.form, *half]
        return "-".join(parts)

    @property
    def kind(self) -> Kind:
        return {**CONTRACT_KINDS, **TIMED}[self.layer]

    def to_json(self) -> dict[str, Any]:
        """The entry of the index."""
        return {
            "name": self.name,
            **asdict(self),
            "masks": list(self.masks),
            "kind": self.kind.to_json(),
        }


def plans(forms: Sequence[str], *, quick: bool = False, only: Collection[str] = ()) -> list[Plan]:
    """All bundles, those of one kind of layer side by side; of the quick ones a handful.

    Args:
        forms: The lowerings there are.
        quick: Whether only a handful is wanted, with few masks.
        only: Words that a name must hold, all of them.
    """
    found = [*_contract(forms), *_timing(forms)]
    if quick:
        found = [
            Plan(**{**asdict(plan), "masks": tuple(mask for mask in plan.masks if mask in (*QUICK_MASKS,))})
            for plan in found
            if (plan.layer, plan.form, plan.precision, plan.weights) in QUICK
        ]
    return [plan for plan in found if all(word in plan.name for word in only)]


def _contract(forms: Sequence[str]) -> list[Plan]:
    found = []
    for layer in CONTRACT_KINDS:
        both = layer in WITH_AND_WITHOUT_WEIGHTS
        for weights in (False, True) if both else (layer in WITH_WEIGHTS,):
            for form in forms:
                found.append(Plan(CONTRACT, layer, form, "float32", weights, tuple(MASKS)))
                if layer in HALF_KINDS and form in HALF_FORMS and not weights:
                    found.append(Plan(CONTRACT, layer, form, "float16", weights, tuple(MASKS)))
    return found


def _timing(forms: Sequence[str]) -> list[Plan]:
    found = []
    for layer in TIMED:
        masks = ("causal_lengths",) if "causal" in layer else ("lengths",)
        for form in forms:
            found.append(Plan(TIMING, layer, form, "float32", False, masks))
            if layer in HALF_TIMED and form in HALF_FORMS:
                found.append(Plan(TIMING, layer, form, "float16", False, masks))
    return found
