"""Lowerings of attention: the ONNX form of each attention call, and the choice of the form.

Letters in shapes: B examples (all batch axes merged into one), H heads of queries, Hkv heads of keys and values, Tq
queries, Tk keys, D elements of a head's query and key (U for additive scores), Dv elements of a head's value. `H D` is
one packed axis of length H * D. A size is an int64 tensor of shape (1,), as ONNX needs it to join a shape.
"""
