"""Names of the lowerings of attention."""

from collections.abc import Iterable, Mapping

PORTABLE = "portable"
ADAPTIVE = "adaptive"
LOWERINGS = (ADAPTIVE, PORTABLE, "fused")
REMOVED_LOWERINGS = ("ragged", "batched", "auto")  # `adaptive` takes their place
BATCHED = "batched"  # the form of `adaptive` for devices such as GPUs
IN_BLOCKS = "portable in blocks"  # the form of `portable` for additive scores on a CPU
# What attention is written for: a CPU, a GPU with CUDA, or any device with the standard operators.
FOR_CPU, FOR_CUDA, FOR_ANY = "cpu", "cuda", "any"
LOWERINGS_WITH_UNTESTED_LARGE_FORM = (
    BATCHED,
    IN_BLOCKS,
)  # decide by sizes, and golden cases are too small for their form of large ones
PLAIN = "plain operators"
UNRECOGNISED = f"{PLAIN}: "  # begins the form, in a manifest, of a layer without an attention call; the reason follows


def asked_by(form: str) -> str:
    """Return the lowering that is asked for where attention gets a form."""
    return {BATCHED: ADAPTIVE, IN_BLOCKS: PORTABLE}.get(form, form)


def describe_lowering(layer: Mapping[str, str]) -> str:
    """Return how an attention layer of a manifest was lowered, or why not."""
    name = layer["name"] or layer["class"]  # hand-written attention outside of all layers has no name
    form = layer["form"]
    if form.startswith(UNRECOGNISED):
        return f"{name}: {PLAIN}, because {form.removeprefix(UNRECOGNISED)}"
    return f"{name}: {layer['lowering']} ({form})"


def count_recognised(layers: Iterable[Mapping[str, str]]) -> str:
    """Return how many attention layers of a manifest have an attention call, which a lowering writes."""
    forms = [layer.get("form", "") for layer in layers]
    count = sum(not form.startswith(UNRECOGNISED) for form in forms)
    return f"{count} of {len(forms)} attention layers recognised"


def instead(lowering: object) -> str:
    """Return the sentence that names what to use for a lowering that `adaptive` replaces; nothing for others."""
    return " Use 'adaptive', which chooses by sizes and provider." if lowering in REMOVED_LOWERINGS else ""
