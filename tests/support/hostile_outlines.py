"""Bytes for `model.onnx` that two readers could take for two things: what is done, and what both of ours say to it."""

from onnx_outlines import Field, message, varint

TENSOR = b"\x08\x04\x10\x01\x42\x01w\x70\x01"  # four floats, called w, that lie elsewhere


def text(number, held, **how):
    return Field(number, 2, held, **how)


def entry(*, key=b"location", value=b"../secret", **how):
    """Return the entry of a tensor that says where it lies."""
    return text(13, message(text(1, key), text(2, value)), **how)


def model(*of_tensor, **how):
    """Return the bytes of a model of one tensor, of which `how` says how its field is written."""
    return message(graph(initializer(*of_tensor, **how)))


def initializer(*of_tensor, **how):
    return text(5, message(TENSOR, *of_tensor), **how)


def graph(*fields, **how):
    return text(7, message(*fields), **how)


def attribute(*fields):
    """Return the bytes of a model with a node of one attribute."""
    return message(graph(text(1, message(text(5, message(*fields))))))


def nested(depth):
    """Return a model with so many graphs inside each other, each in an attribute of a node."""
    held = b""
    for _ in range(depth):
        held = message(text(1, message(text(5, message(text(6, held))))))
    return message(text(7, held))


ELSEWHERE = "takes weights from `../secret`, which is no file of the bundle."
LONG = "is not an ONNX file: a number in it has more bytes than it needs."
SHORT = "is not an ONNX file: it is cut short."


def unknown(kind, number, wire):
    return f"is not an ONNX file: a {kind} has no field {number} of wire type {wire}."


def twice(kind, number):
    return f"is not an ONNX file: field {number} of a {kind} is there twice."


SECRET = message(TENSOR, entry())

HOSTILE = {
    "elsewhere": (model(entry()), ELSEWHERE),
    "a later location": (model(entry(value=b"inside"), entry()), ELSEWHERE),
    "key after value": (model(text(13, message(text(2, b"../secret"), text(1, b"location")))), ELSEWHERE),
    # tags and lengths
    "bit 32 in the tag of an entry": (model(entry(tag_more=2**32)), unknown("tensor", 13 + 2**29, 2)),
    "bit 34 in the tag of an entry": (model(entry(tag_more=2**34)), unknown("tensor", 13 + 2**31, 2)),
    "bit 32 in the tag of a graph": (
        message(graph(initializer(entry()), tag_more=2**32)),
        unknown("model", 7 + 2**29, 2),
    ),
    "bit 32 in the tag of a location": (
        model(text(13, message(text(1, b"location"), text(2, b"inside"), text(2, b"../secret", tag_more=2**32)))),
        unknown("entry", 2 + 2**29, 2),
    ),
    **{f"a tag of {size} bytes": (model(entry(tag_size=size)), LONG) for size in (2, 3, 5, 6, 10)},
    "a tag of 6 bytes with bit 35": (model(entry(tag_more=2**35)), LONG),
    **{f"a length of {size} bytes": (model(entry(length_size=size)), LONG) for size in (2, 5, 6, 10)},
    **{f"bit {bit} in a length": (model(entry(length_more=2**bit)), SHORT) for bit in (31, 32, 34)},
    "bit 63 in a length": (model(entry(length_more=2**63)), LONG),
    "a length beyond the message": (model(entry(length_more=1)), SHORT),
    "a length beyond the file": (message(graph(b"", length_more=2**20)), SHORT),
    "a length that is cut off": (b"\x3a\x80", SHORT),
    "a tag alone": (b"\x3a", SHORT),
    "a number of 11 bytes": (message(Field(1, 0, b"\x80" * 10 + b"\x01")), LONG),
    "a number with zeros": (message(Field(1, 0, varint(8, 3))), LONG),
    "four bytes cut off": (attribute(Field(2, 5, bytes(3))), SHORT),
    # wire types, field numbers
    "field 0": (model(text(0, b"x"), entry()), unknown("tensor", 0, 2)),
    "a zero after the end": (model() + b"\x00", unknown("model", 0, 0)),
    "a group": (model(text(15, SECRET, group=True)), unknown("tensor", 15, 3)),
    "a graph as a group": (message(graph(initializer(entry()), group=True)), unknown("model", 7, 3)),
    "an entry as a group": (model(entry(group=True)), unknown("tensor", 13, 3)),
    "the end of a group": (model(varint(13 << 3 | 4)), unknown("tensor", 13, 4)),
    "wire type 6": (model(varint(13 << 3 | 6)), unknown("tensor", 13, 6)),
    "wire type 7": (model(varint(13 << 3 | 7)), unknown("tensor", 13, 7)),
    "an entry as a number": (model(Field(13, 0, b"\x01")), unknown("tensor", 13, 0)),
    "a location as a number": (
        model(text(13, message(text(1, b"location"), Field(2, 0, b"\x01")))),
        unknown("entry", 2, 0),
    ),
    "data_location as bytes": (model(text(14, b"\x01")), unknown("tensor", 14, 2)),
    "a name as a number": (model(Field(8, 0, b"\x01")), unknown("tensor", 8, 0)),
    "a field that is reserved": (message(graph(text(3, SECRET))), unknown("graph", 3, 2)),
    "a field of another day": (message(graph(text(40, SECRET))), unknown("graph", 40, 2)),
    # what protobuf merges
    "two graphs": (message(graph(b""), graph(initializer(entry()))), twice("model", 7)),
    "two tensors of an attribute": (attribute(text(5, TENSOR), text(5, SECRET)), twice("attribute", 5)),
    "two graphs of an attribute": (attribute(text(6, b""), text(6, b"")), twice("attribute", 6)),
    "two keys": (model(text(13, message(text(1, b"location"), text(1, b"offset"), text(2, b"0")))), twice("entry", 1)),
    "two values": (
        model(text(13, message(text(1, b"location"), text(2, b"inside"), text(2, b"../secret")))),
        twice("entry", 2),
    ),
    # entries
    "no key": (model(text(13, message(text(2, b"../secret")))), "is not an ONNX file: external data has no entry ``."),
    "prepacked": (
        model(entry(value=b"inside"), entry(key=b"prepacked_0", value=b"x|0;9;0")),
        "has no entry `prepacked_0`.",
    ),
    "LOCATION": (model(entry(key=b"LOCATION")), "external data has no entry `LOCATION`."),
    "a mark before the key": (
        model(entry(key="\ufefflocation".encode())),
        "external data has no entry `\ufefflocation`.",
    ),
    "a mark before the location": (
        model(entry(value="\ufeffinside".encode())),
        "takes weights from `\ufeffinside`, which is",
    ),
    "an end within a location": (model(entry(value=b"inside\0/../../secret")), "which is no file of the bundle."),
    "a location that is no text": (
        model(entry(value=b"in\xffside")),
        "takes weights from `in\ufffdside`, which is no file",
    ),
    "no location": (model(entry(value=b"")), "takes weights from ``, which is no file of the bundle."),
    "a long location": (model(entry(value=b"x" * 10**6)), f"takes weights from `{'x' * 200}` and so on, which is no"),
    "an address": (model(entry(value=b"*/_ORT_MEM_ADDR_/*")), "takes weights from `*/_ORT_MEM_ADDR_/*`, which is no"),
    # size
    "too deep": (nested(34), "is not an ONNX file: messages lie in each other more than 100 deep."),
    "empty messages": (
        message(graph(b"\x0a\x00" * 2_000_000)),
        "is not an ONNX file: it has more than 2000000 fields.",
    ),
}

LEGAL = {
    "nothing": b"",
    "a tensor inside": model(entry(value=b"inside")),
    "a tensor inside, told twice": model(entry(value=b"inside"), entry(value=b"inside")),
    "as deep as protobuf goes": nested(33),
    "the names of an unknown reader": message(text(2, b"\xff\x00")),
    "numbers together and apart": attribute(
        Field(8, 0, b"\x01"), text(8, b"\x01\x02"), Field(7, 5, bytes(4)), text(7, bytes(8))
    ),
    "a negative number": message(Field(5, 0, b"\xff" * 9 + b"\x01")),
}
