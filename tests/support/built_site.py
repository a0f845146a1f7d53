"""The pages of build/site, and what is wrong with them: links, what they load, what the reference says."""

import importlib
import posixpath
import re
from collections.abc import Iterable
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Built(HTMLParser):
    """The anchors of a built page, where it links to, what it loads, and its text below each anchor."""

    def __init__(self, text: str):
        super().__init__()
        self.anchors: set[str] = set()
        self.links: set[str] = set()
        self.loads: set[str] = set()
        self.below: dict[str, str] = {}
        self._latest = ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        if given.get("id"):
            self.anchors.add(given["id"])
            if tag in ("h1", "h2", "h3", "h4"):
                self._latest = given["id"]
        if tag == "a" and given.get("href"):
            self.links.add(given["href"])
        elif tag in ("img", "script", "iframe", "source") and given.get("src"):
            self.loads.add(given["src"])
        elif tag == "link" and given.get("rel") not in ("canonical", "prev", "next"):
            self.loads.add(given["href"])

    def handle_data(self, data):
        self.below[self._latest] = self.below.get(self._latest, "") + data


def built_faults(site: Path) -> list[str]:
    """What is broken in built pages: links, anchors, and what they load from elsewhere or is not there."""
    built = {path.relative_to(site).as_posix(): Built(path.read_text("utf-8")) for path in site.rglob("*.html")}
    faults = []
    for name, page in built.items():
        if name == "404.html":  # its links begin at the address of a site that has none
            continue
        for target in sorted(page.links | page.loads):
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                if target in page.loads and parts.scheme != "data":
                    faults.append(f"{name} loads {target}")
                continue
            path = posixpath.normpath(posixpath.join(posixpath.dirname(name), unquote(parts.path)))
            linked = name if not parts.path else "index.html" if path == "." else path
            if linked not in built and not (site / linked).is_file():
                faults.append(f"{name} links to {target}")
            elif parts.fragment and unquote(parts.fragment) not in built[linked].anchors | {"__top"}:
                faults.append(f"{name} links to {target}, and there is no such anchor")
    return faults


def undescribed(site: Path, names: Iterable[str]) -> list[str]:
    """The public names without a heading on a page of the reference, or without their docstring below it."""
    below: dict[str, str] = {}
    for path in (site / "reference").glob("*.html"):
        below.update(Built(path.read_text("utf-8")).below)
    return [name for name in names if first_sentence(name) not in words(below.get(name, ""))]


def first_sentence(path: str) -> str:
    """The beginning of the docstring of a public name, as plain words."""
    module, _, name = path.rpartition(".")
    text = getattr(importlib.import_module(module), name).__doc__
    return words(text.strip().split("\n")[0])


def words(text: str) -> str:
    """Only letters and digits: what Markdown makes of the rest does not matter."""
    return re.sub(r"[^a-z0-9]+", " ", text.lower()).strip()
