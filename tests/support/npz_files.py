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


def changed(content, offset, value, mark=b"PK\x01\x02"):
    """Return an archive with bytes put at a place behind a mark."""
    content = bytearray(content)
    at = content.index(mark) + offset
    content[at : at + len(value)] = value
    return bytes(content)


def header(shape, descr="<f4"):
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"shape": shape, "fortran_order": False, "descr": descr})
    return stream.getvalue()


PLAIN = npy(np.arange(300, dtype="int16"))
REFUSED = {  # content, what is said
    "nothing": (b"", "it is no zip archive"),
    "text": (b"text" * 100, "it is no zip archive"),
    "single": (PLAIN, "it holds a single array, without a name"),
    "no array": (packed(b"text"), "`x.npy` is no array"),
    "no array at all": (packed(b""), "`x.npy` is no array"),
    "version": (packed(b"\x93NUMPY\x04\x00" + bytes(64)), r"`x.npy` is in version (4|\(4, 0\))"),
    "objects": (packed(header((1,), "|O") + bytes(8)), "`x.npy` holds objects"),
    "records": (packed(npy(np.zeros(2, [("a", "i4")]))), "`x.npy` is no array of numbers or text"),
    "complex": (packed(npy(np.zeros(2, complex))), "`x.npy` has dtype <c16, which is not read"),
    "big-endian": (packed(npy(np.zeros(2, ">f4"))), "`x.npy` has dtype >f4, which is not read"),
    "bytes": (packed(npy(np.array([b"a"]))), r"`x.npy` has dtype \|S1, which is not read"),
    "no length": (packed(header((3,), "<U0")), "`x.npy` has dtype <U0, (which is not|of which any number is no) "),
    "more than there is": (
        packed(header((2**40,)) + bytes(8)),
        r"`x.npy` holds 8 bytes, and 4398046511104 belong to shape \(1099511627776,\) and dtype (<f4|float32)",
    ),
    "less than there is": (packed(header(()) + bytes(8)), r"holds 8 bytes, and 4 belong to shape \(\) and"),
    "no code point": (packed(header((1,), "<U1") + b"\xff" * 4), "beyond"),
    "packed otherwise": (packed(PLAIN, zipfile.ZIP_LZMA), r"(`x.npy` is|\['x.npy'\] are) packed in another way "),
    "encrypted": (changed(packed(PLAIN), 8, b"\x01"), "`x.npy` is encrypted"),
    "longer than told": (changed(packed(PLAIN), 24, b"\x10\x00\x00\x00"), "`x.npy` is not as long as the archive says"),
    "shorter than told": (
        changed(packed(PLAIN), 24, b"\x10\x10\x00\x00"),
        "`x.npy` is not as long as the archive says",
    ),
    "stored, longer": (changed(packed(PLAIN, 0), 24, b"\x10"), "`x.npy` is not as long as the archive says"),
    "checksum": (changed(packed(PLAIN, 0), 200, b"\x99", b"NUMPY"), "`x.npy` has another checksum"),
    "deflate": (changed(packed(PLAIN), 40, b"\xff" * 40, b"PK\x03\x04"), r"`x.npy` cannot be unpacked \(.+\)"),
    "deflate cut short": (changed(packed(PLAIN), 20, b"\x20\x00"), r"`x.npy` cannot be unpacked \(.+\)"),
    "elsewhere": (changed(packed(PLAIN), 42, b"\x07"), "`x.npy` is not where the archive says"),
    "far away": (changed(packed(PLAIN), 42, b"\xf0\xff\xff\x7f"), "beyond its end"),
    "cut short": (changed(packed(PLAIN), 10, b"\x05\x00", b"PK\x05\x06"), "its list of arrays is cut short"),
    "list elsewhere": (changed(packed(PLAIN), 16, b"\xff\xff\xff\x7f", b"PK\x05\x06"), "beyond its end"),
    "far more": (changed(packed(PLAIN), 24, b"\0\0\0\x08"), r"its \d+ bytes would unpack to \d+, more than 100 times"),
}
