"""Parquet files whose footer tells of other numbers of rows than the pages hold."""


def tell(file, rows, told, *, values=True):
    """Write `told` wherever the footer of a file tells of `rows`: of the file, of row groups, of values of a column.

    Those are fields of 64 bits that follow the field before: in Thrift's compact protocol `0x16`, and the number.
    Without `values` only the first and the last are written: the file's and, where it is one, the row group's.
    """
    content = file.read_bytes()
    start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    old, new = b"\x16" + _number(rows), b"\x16" + _number(told)
    head, *middle, tail = content[start:-8].split(old)
    assert middle or values, f"the footer tells of {rows} rows once or never"
    footer = new.join([head, (new if values else old).join(middle), tail]) if middle else new.join([head, tail])
    file.write_bytes(content[:start] + footer + len(footer).to_bytes(4, "little") + content[-4:])


def _number(value):
    """Return a number as Thrift does: zigzag, and then seven bits a byte."""
    left, found = value << 1 if value >= 0 else ~(value << 1), bytearray()
    while left >= 128:
        found.append(left & 127 | 128)
        left >>= 7
    return bytes([*found, left])
