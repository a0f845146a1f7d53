"""The textbook's layers in a process of their own, for a framework that does not load beside others.

paddlepaddle 3.3 ends the process with a segmentation fault when it is imported after TensorFlow and torch.
"""

import copy
import importlib
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from functools import cache


class TextbookProcess:
    def __init__(self, module):
        self._module = module

    def __getattr__(self, name):
        def make(random, *sizes):
            request = (self._module, name, copy.deepcopy(random), sizes)
            state, _ = _process().submit(_answer, *request, None).result()
            return state, lambda *inputs: _process().submit(_answer, *request, inputs).result()[1]

        return make


@cache
def _process():
    return ProcessPoolExecutor(max_workers=1, mp_context=multiprocessing.get_context("spawn"))


def _answer(module, name, random, sizes, inputs):
    state, run = getattr(importlib.import_module(module), name)(random, *sizes)
    return state, None if inputs is None else run(*inputs)
