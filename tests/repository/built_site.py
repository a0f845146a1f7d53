"""The pages of build/site, and what is wrong with them: links, and what they load."""

import posixpath
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit


class Built(HTMLParser):
    """The anchors of a built page, where it links to, and what it loads."""

    def __init__(self, text):
        super().__init__()
        self.anchors: set[str] = set()
        self.links: set[str] = set()
        self.loads: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        if given.get("id"):
            self.anchors.add(given["id"])
        if tag == "a" and given.get("href"):
            self.links.add(given["href"])
        elif tag in ("img", "script", "iframe", "source") and given.get("src"):
            self.loads.add(given["src"])
        elif tag == "link" and given.get("rel") not in ("canonical", "prev", "next"):
            self.loads.add(given["href"])


def built_faults(site):
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
