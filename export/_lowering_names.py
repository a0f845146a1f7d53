"""Names of the lowerings of attention."""

from __future__ import annotations

PORTABLE = "portable"
ADAPTIVE = "adaptive"
LOWERINGS = (ADAPTIVE, PORTABLE, "fused")
REPLACED = ("ragged", "batched", "auto")  # `adaptive` takes their place
BATCHED = "batched"  # the form of `adaptive` for devices such as GPUs
IN_BLOCKS = "portable in blocks"  # the form of `portable` for additive scores on a CPU
# What attention is written for: a CPU, a GPU with CUDA, or any device with the standard operators.
FOR_CPU, FOR_CUDA, FOR_ANY = "cpu", "cuda", "any"
LARGE_UNSEEN = (BATCHED, IN_BLOCKS)  # decide by sizes, and golden cases are too small for their form of large ones


def asked_by(form: str) -> str:
    """Return the lowering that is asked for where attention gets a form."""
    return {BATCHED: ADAPTIVE, IN_BLOCKS: PORTABLE}.get(form, form)


def instead(lowering: object) -> str:
    """Return the sentence that names what to use for a lowering that `adaptive` replaces; nothing for others."""
    return " Use 'adaptive', which chooses by sizes and provider." if lowering in REPLACED else ""
