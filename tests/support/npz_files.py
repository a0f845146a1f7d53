"""Files of arrays, packed as NumPy does it and otherwise, and what `verify.py` says of those."""

import io
import zipfile

import numpy as np


def floats(*values, dtype="float32"):
    return np.array(values, dtype)


def packed(content, compression=zipfile.ZIP_DEFLATED, name="x.npy"):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as file:
        file.writestr(name, content)
    return stream.getvalue()


def archive_of(count, letters=1):
    """Return an archive whose list names so many members, of which there is not one."""
    entry = b"PK\x01\x02" + bytes(24) + letters.to_bytes(2, "little") + bytes(16) + b"x" * letters
    size = count * len(entry)
    told = min(count, 0xFFFF).to_bytes(2, "little") * 2 + size.to_bytes(4, "little") + bytes(4)
    return entry * count + b"PK\x05\x06" + bytes(4) + told + bytes(2)


def npy(array, version=None):
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.asanyarray(array), version)
    return stream.getvalue()


def header(shape, descr="<f4"):
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"shape": shape, "fortran_order": False, "descr": descr})
    return stream.getvalue()


REFUSED = {  # content, what is said
    "no array": (packed(b"text"), "`x.npy` is no array"),
    "version": (packed(b"\x93NUMPY\x04\x00" + bytes(64)), r"`x.npy` is in version \(4, 0\)"),
    "version 3": (packed(b"\x93NUMPY\x03\x00" + bytes(64)), r"version \(3, 0\)"),
    "objects": (packed(header((1,), "|O") + bytes(8)), "`x.npy` holds objects"),
    "no length": (packed(header((3,), "<U0")), "`x.npy` has dtype <U0, of which any number is no "),
    "more than there is": (
        packed(header((2**40,)) + bytes(8)),
        r"`x.npy` holds 8 bytes, and 4398046511104 belong to shape \(1099511627776,\) and dtype float32",
    ),
    "less than there is": (packed(header(()) + bytes(8)), r"holds 8 bytes, and 4 belong to shape \(\) and"),
    "LZMA": (packed(npy(np.arange(300)), zipfile.ZIP_LZMA), "packed in another way "),
    "bzip2": (packed(bytes(64), zipfile.ZIP_BZIP2), "packed in another way "),
}
