"""All that is used of torch without being public there, in one place."""


def is_transformed() -> bool:
    """Whether a transform of `torch.func` is at work."""
    import torch

    return bool(torch._C._are_functorch_transforms_active())
