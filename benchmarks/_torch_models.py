"""The same attention in PyTorch, in a few lines as a user of it would write them. Imports torch."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from _sizes import ADDITIVE, Size


def additive(q: Any, k: Any, v: Any, valid_lens: Any, W_q: Any, W_k: Any, w_v: Any) -> Any:
    features = torch.tanh((q @ W_q)[:, :, None] + (k @ W_k)[:, None])
    return _pool((features @ w_v).squeeze(-1), v, valid_lens)


def dot_product(q: Any, k: Any, v: Any, valid_lens: Any) -> Any:
    return _pool(q @ k.transpose(1, 2) * q.shape[-1] ** -0.5, v, valid_lens)


def sdpa(q: Any, k: Any, v: Any, valid_lens: Any) -> Any:
    mask = torch.arange(k.shape[1], device=k.device) < valid_lens[:, None, None]
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def sdpa_without_mask(q: Any, k: Any, v: Any, _: Any) -> Any:
    return torch.nn.functional.scaled_dot_product_attention(q, k, v)


def _pool(scores: Any, values: Any, valid_lens: Any) -> Any:
    mask = torch.arange(scores.shape[-1], device=scores.device) < valid_lens[:, None, None]
    return torch.softmax(scores.masked_fill(~mask, -torch.inf), -1) @ values


FORMS = {"additive": additive, "dot": dot_product, "sdpa": sdpa, "sdpa without mask": sdpa_without_mask}


def inference(options: dict[str, Any], inputs: dict[str, np.ndarray], device: str) -> Callable[[], list[Any]]:
    """Return a function that runs the form of the options once, to its end."""
    function = torch.compile(FORMS[options["form"]]) if options["compile"] else FORMS[options["form"]]
    arrays = [torch.from_numpy(array).to(device) for array in (*inputs.values(), *options["weights"])]

    @torch.no_grad()
    def run() -> list[Any]:
        output = function(*arrays)
        if device == "cuda":
            torch.cuda.synchronize()
        return [output]

    return run


class Training:
    """Training steps of additive attention: forward, mean squared error, backward, update."""

    def __init__(self, options: dict[str, Any], inputs: dict[str, np.ndarray], device: str) -> None:
        assert Size(**options["size"]).layer == ADDITIVE
        *arrays, self.target = (torch.from_numpy(array).to(device) for array in inputs.values())
        self.arrays, self.device = arrays, device
        self.weights = [torch.tensor(w, device=device).requires_grad_() for w in options["weights"]]
        self.optimizer = torch.optim.SGD(self.weights, lr=options["rate"])
        self.loss = torch.compile(self._loss) if options["compile"] else self._loss

    def _loss(self) -> Any:
        output = additive(*self.arrays, *self.weights)
        return torch.nn.functional.mse_loss(output, self.target)

    def run(self) -> None:
        self.optimizer.zero_grad()
        self.loss().backward()
        self.optimizer.step()
        if self.device == "cuda":
            torch.cuda.synchronize()

    def set(self, weights: list[np.ndarray], rate: float) -> None:
        with torch.no_grad():
            for held, given in zip(self.weights, weights, strict=True):
                held.copy_(torch.from_numpy(given))
        self.optimizer.param_groups[0]["lr"] = rate

    def read(self) -> list[np.ndarray]:
        return [weight.detach().cpu().numpy().copy() for weight in self.weights]
