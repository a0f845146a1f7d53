"""Ports that are free on this machine, whom a process talks to, and how long it may take."""

import ipaddress
import os
import socket
from contextlib import ExitStack
from pathlib import Path

LIMIT = 480  # seconds that a process may take; the longest takes 25 on two cores that do nothing else
_ESTABLISHED = "01"  # as the kernel writes a state in /proc/net/tcp
_TABLES = {"tcp": 4, "tcp6": 16}  # and how many bytes an address has there


def free_ports(count: int) -> list[int]:
    """Return ports that nobody on this machine listens at, all held until the last is found, so that no two agree."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def peers() -> list[str]:
    """Return the addresses at the other ends of this process's TCP connections; none where there is no /proc."""
    if not Path("/proc/self/fd").is_dir():
        return []
    mine = {_target(each).removeprefix("socket:[").rstrip("]") for each in Path("/proc/self/fd").iterdir()}
    found = []
    for table, size in _TABLES.items():
        for line in Path(f"/proc/self/net/{table}").read_text(encoding="ascii").splitlines()[1:]:
            _, _, remote, state, *_, inode = line.split()[:10]
            if state == _ESTABLISHED and inode in mine:
                found.append(_address(remote.split(":")[0], size))
    return sorted(found)


def _target(link: Path) -> str:
    try:
        return os.readlink(link)
    except OSError:  # closed meanwhile: the folder itself was open while it was listed
        return ""


def _address(text: str, size: int) -> str:
    """An address that the kernel wrote as words of four bytes, each with the last byte first."""
    raw = bytes.fromhex(text)
    address = ipaddress.ip_address(b"".join(raw[at : at + 4][::-1] for at in range(0, size, 4)))
    return str(getattr(address, "ipv4_mapped", None) or address)
