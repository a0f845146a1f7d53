"""Names of the lowerings of attention, and of their forms in a manifest."""

from collections.abc import Iterable, Mapping

PORTABLE = "portable"
ADAPTIVE = "adaptive"
LOWERINGS = (ADAPTIVE, PORTABLE, "fused")
REMOVED_LOWERINGS = ("ragged", "batched", "auto")  # replaced by `adaptive`
ADAPTIVE_GPU = "batched"  # the variant of `adaptive` for GPUs
PORTABLE_IN_BLOCKS = "portable in blocks"  # the variant of `portable` for additive scores on a CPU
# Target devices of attention: a CPU, a GPU with CUDA, or any device with the standard operators.
FOR_CPU, FOR_CUDA, FOR_ANY = "cpu", "cuda", "any"
# The sizes of golden cases select the small form of these lowerings, so that the large form is checked separately.
LOWERINGS_WITH_UNTESTED_LARGE_FORM = (ADAPTIVE_GPU, PORTABLE_IN_BLOCKS)
PLAIN_OPERATORS = "plain operators"
# In a manifest, the prefix of `form` for a layer without an attention call; the reason follows.
UNRECOGNISED = f"{PLAIN_OPERATORS}: "


def requested_lowering(form: str) -> str:
    """Return the value of the argument `lowering` for a variant."""
    return {ADAPTIVE_GPU: ADAPTIVE, PORTABLE_IN_BLOCKS: PORTABLE}.get(form, form)


def describe_lowering(layer: Mapping[str, str]) -> str:
    """Return a line with the lowering of an attention layer of a manifest, or the reason why it has none."""
    name = layer["name"] or layer["class"]  # an attention pattern outside of all layers has no name
    form = layer["form"]
    if form.startswith(UNRECOGNISED):
        return f"{name}: {PLAIN_OPERATORS}, because {form.removeprefix(UNRECOGNISED)}"
    return f"{name}: {layer['lowering']} ({form})"


def count_recognised(layers: Iterable[Mapping[str, str]]) -> str:
    """Return a sentence with the number of attention layers of a manifest that a lowering writes."""
    forms = [layer.get("form", "") for layer in layers]
    count = sum(not form.startswith(UNRECOGNISED) for form in forms)
    return f"{count} of {len(forms)} attention layers recognised"


def removed_lowering_hint(lowering: object) -> str:
    """Return the hint for a removed lowering, and an empty string for any other value."""
    return " Use 'adaptive', which chooses by sizes and provider." if lowering in REMOVED_LOWERINGS else ""
