"""ONNX files that keep values in other files, what is done to their bytes, and what onnx's own readers make of them."""

from collections import Counter
from dataclasses import dataclass

import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from onnx import AttributeProto, GraphProto, ModelProto, TensorProto, onnx_cpp2py_export

WIRES = {
    FieldDescriptor.TYPE_INT32: 0,
    FieldDescriptor.TYPE_INT64: 0,
    FieldDescriptor.TYPE_UINT64: 0,
    FieldDescriptor.TYPE_ENUM: 0,
    FieldDescriptor.TYPE_DOUBLE: 1,
    FieldDescriptor.TYPE_STRING: 2,
    FieldDescriptor.TYPE_BYTES: 2,
    FieldDescriptor.TYPE_MESSAGE: 2,
    FieldDescriptor.TYPE_FLOAT: 5,
}

# ------------------------------------------------------------------- models


def outside(name, location="data", **more):
    """Return a tensor whose values are in another file."""
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    for key, value in {"offset": "0", "location": location, **more}.items():
        tensor.external_data.add(key=key, value=value)
    return tensor


def everywhere():
    """Return a model that has a tensor in another file wherever one may be; no reader knows its operators."""
    numbers = iter(range(100))

    def tensor():
        number = next(numbers)
        return outside(f"t{number}", f"data{number}", length="16")

    def attributes(depth):
        yield AttributeProto(name="t", type=AttributeProto.TENSOR, t=tensor())
        yield AttributeProto(name="ts", type=AttributeProto.TENSORS, tensors=[tensor(), TensorProto(dims=[0])])
        yield AttributeProto(name="i", type=AttributeProto.INTS, ints=[1, -1], floats=[0.5], f=2.0)
        sparse = onnx.SparseTensorProto(values=tensor(), indices=tensor(), dims=[9])
        yield AttributeProto(name="s", type=AttributeProto.SPARSE_TENSOR, sparse_tensor=sparse, sparse_tensors=[sparse])
        if depth:
            inner = graph(depth - 1)
            yield AttributeProto(name="g", type=AttributeProto.GRAPH, g=inner, graphs=[inner])

    def node(depth):
        return onnx.NodeProto(op_type="Odd", domain="odd", input=["x"], output=["y"], attribute=attributes(depth))

    def graph(depth):
        whole = TensorProto(name="w", data_type=TensorProto.DOUBLE, dims=[1], double_data=[0.5], int64_data=[3])
        made = GraphProto(name="g", node=[node(depth)], initializer=[tensor(), whole], doc_string="all of it")
        made.sparse_initializer.add(values=tensor(), indices=tensor(), dims=[9])
        made.output.append(onnx.helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 3]))
        return made

    function = onnx.FunctionProto(name="F", domain="odd", node=[node(0)], attribute_proto=attributes(0))
    opsets = [onnx.helper.make_opsetid("", 18), onnx.helper.make_opsetid("odd", 1)]
    function.opset_import.extend(opsets)
    training = onnx.TrainingInfoProto(initialization=graph(0), algorithm=graph(0))
    return ModelProto(ir_version=8, opset_import=opsets, graph=graph(1), functions=[function], training_info=[training])


def one():
    """Return a model of one tensor, in another file."""
    return ModelProto(ir_version=8, graph=GraphProto(initializer=[outside("w")]))


def inner():
    """Return a model with a branch that has one."""
    branch = AttributeProto(name="g", g=GraphProto(initializer=[outside("v", "inside")]))
    constant = AttributeProto(name="t", t=outside("w"))
    return ModelProto(graph=GraphProto(node=[onnx.NodeProto(attribute=[branch, constant])]))


MODELS = [everywhere, *[one, inner] * 10]


def trees():
    """Return the fields of models to change, of small ones the most."""
    return [fields_of(model().SerializeToString()) for model in MODELS]


# ----------------------------------------------------------- what is written


def varint(number, size=1):
    """Return a number as protobuf writes it, in so many bytes at least."""
    written = bytearray()
    while number > 0x7F or len(written) + 1 < size:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*written, number])


@dataclass
class Field:
    """A field of a message; a message in it is a list of its own fields, and what follows is how they are written."""

    number: int
    wire: int
    held: "bytes | list[Field]"
    tag_size: int = 1
    tag_more: int = 0
    length_size: int = 1
    length_more: int = 0
    group: bool = False

    def written(self):
        held = self.held if isinstance(self.held, bytes) else message(*self.held)
        if self.group:
            return varint(self.number << 3 | 3) + held + varint(self.number << 3 | 4)
        tag = varint((self.number << 3 | self.wire) + self.tag_more, self.tag_size)
        length = varint(len(held) + self.length_more, self.length_size) if self.wire == 2 else b""
        return tag + length + held


def message(*fields):
    return b"".join(each if isinstance(each, bytes) else each.written() for each in fields)


def fields_of(content, kind=ModelProto.DESCRIPTOR):
    """Return the fields of a message as onnx writes it, with those of the messages in it."""
    at, found = 0, []

    def number():
        nonlocal at
        value = shift = 0
        while True:
            byte = content[at]
            at, value, shift = at + 1, value | (byte & 0x7F) << shift, shift + 7
            if byte < 0x80:
                return value

    while at < len(content):
        tag = number()
        known, start = kind.fields_by_number[tag >> 3], at
        if tag & 7 == 0:
            number()
            held = content[start:at]
        else:
            size = {1: lambda: 8, 2: number, 5: lambda: 4}[tag & 7]()
            held, at = content[at : at + size], at + size
        if known.message_type is not None:
            held = fields_of(held, known.message_type)
        found.append(Field(tag >> 3, tag & 7, held))
    return found


# --------------------------------------------------------------- what is done


def copied(fields):
    """Return the same fields, to change; each is written as onnx does."""
    return [
        Field(each.number, each.wire, each.held if isinstance(each.held, bytes) else copied(each.held))
        for each in fields
    ]


def messages_of(fields):
    """Yield the lists of fields of a message and of all in it."""
    yield fields
    for each in fields:
        if isinstance(each.held, list):
            yield from messages_of(each.held)


def mutated(whole, rng):
    """Return the bytes of a message after one to three changes, to its fields, to how they are written, or to bytes."""
    tree, later = copied(whole), []
    for change in rng.choice(len(CHANGES), rng.integers(1, 4)):
        kind = CHANGES[change]
        if kind in (flip, splice):
            later.append(kind)
        else:
            messages = [each for each in messages_of(tree) if each] or [copied(whole)]
            kind(messages[rng.integers(len(messages))], messages, rng)
    content = bytearray(message(*tree))
    for kind in later:
        kind(content, rng)
    return bytes(content)


def some(fields, rng):
    return int(rng.integers(len(fields)))


def rewrite(fields, messages, rng):
    """Write tag or length in another way, of which some stand for the same number in 32 bits."""
    chosen = fields[some(fields, rng)]
    name, value = [
        ("tag_size", int(rng.integers(2, 7))),
        ("tag_more", int(rng.integers(1, 9)) << 32),
        ("length_size", int(rng.integers(2, 12))),
        ("length_more", int(rng.integers(1, 4)) << int(rng.choice([31, 32, 34, 63]))),
        ("group", True),
    ][rng.integers(5)]
    setattr(chosen, name, value)


def rename(fields, messages, rng):
    """Give a field another number, or another wire type."""
    chosen = fields[some(fields, rng)]
    if rng.integers(2):
        chosen.number = int(rng.choice([0, 1, 2, 5, 6, 7, 10, 11, 13, 20, 25, 40, 2**28, 2**29]))
    else:
        chosen.wire = int(rng.integers(8))


def double(fields, messages, rng):
    fields.insert(some(fields, rng), *copied([fields[some(fields, rng)]]))


def drop(fields, messages, rng):
    del fields[some(fields, rng)]


def move(fields, messages, rng):
    """Take a field out, or leave it, and put it into another message."""
    place = some(fields, rng)
    (taken,) = copied([fields[place]])
    if rng.integers(2):
        del fields[place]
    other = messages[some(messages, rng)]
    other.insert(int(rng.integers(len(other) + 1)), taken)


def add(fields, messages, rng):
    """Put a short field in that is not there."""
    wire = int(rng.integers(8))
    held = {0: varint(int(rng.integers(200)), int(rng.integers(1, 12))), 1: bytes(8), 5: bytes(4)}.get(wire, b"")
    number = int(rng.integers(30))
    fields.insert(some(fields, rng), Field(number, wire, held))


def flip(content, rng):
    if content:
        content[rng.integers(len(content))] ^= 1 << int(rng.integers(8))


def splice(content, rng):
    """Put some of the bytes into another place, in front of what is there or over it."""
    start, place = (int(rng.integers(len(content) + 1)) for _ in range(2))
    piece = content[start : start + int(rng.integers(1, 40))]
    content[place : place + int(rng.integers(2)) * len(piece)] = piece


CHANGES = [rewrite, rewrite, rename, double, drop, move, move, add, flip, splice]


# -------------------------------------------------------- what others read


def entries_of(found):
    """Return how often each entry of external data is in a message, whatever leads to it."""
    counted = Counter()
    for known, value in found.ListFields():
        if known.message_type is None:
            continue
        for each in [value] if isinstance(value, Message) else value:
            if isinstance(found, TensorProto) and known.name == "external_data":
                counted[raw(each, "key"), raw(each, "value")] += 1
            else:
                counted += entries_of(each)
    return counted


def is_repeated(known):
    """Tell it of a field, as protobuf before 6 and after 7 can be asked."""
    return known.is_repeated if hasattr(known, "is_repeated") else known.label == known.LABEL_REPEATED


def raw(entry, name):
    value = getattr(entry, name)  # bytes where they are no text
    return value.encode() if isinstance(value, str) else value


def by_python(content):
    """Return the entries that protobuf for Python finds, or None where it finds no model."""
    try:
        return entries_of(ModelProto.FromString(content))
    except Exception:  # noqa: BLE001 - of a kind that protobuf does not name
        return None


def by_cpp(content):
    """Return the entries that protobuf for C++ finds, with which onnx reads a model to inline functions, here none."""
    try:
        written = onnx_cpp2py_export.inliner.inline_selected_functions(content, [], False)
    except Exception:  # noqa: BLE001 - C++'s of any kind
        return None
    return by_python(written)
