"""The textbook's layers in a separate process, for a framework that crashes after the import of others.

paddlepaddle 3.3 ends the process with a segmentation fault when it is imported after TensorFlow and torch.
"""

import copy
import importlib
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from functools import cache


class TextbookProcess:
    """The functions of a textbook module, called in the separate process."""

    def __init__(self, module):
        self._module = module

    def __getattr__(self, name):
        def build_layer(random, *sizes):
            request = (self._module, name, copy.deepcopy(random), sizes)
            state, _ = _start_process().submit(_call_layer, *request, None).result()
            return state, lambda *inputs: _start_process().submit(_call_layer, *request, inputs).result()[1]

        return build_layer


@cache
def _start_process():
    return ProcessPoolExecutor(max_workers=1, mp_context=multiprocessing.get_context("spawn"))


def _call_layer(module, name, random, sizes, inputs):
    state, run = getattr(importlib.import_module(module), name)(random, *sizes)
    return state, None if inputs is None else run(*inputs)
