"""The pages of docs/ as sources, and what is wrong with their links, their menu and their reference."""

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping

CODE = re.compile(r"^(`{3,}).*?^\1$|<!--.*?-->|`[^`\n]+`", flags=re.MULTILINE | re.DOTALL)
INLINE_LINK = re.compile(r"\]\(([^)\s]+)\)")
DEFINITION = re.compile(r"^\[([^\]]+)\]: (\S+)$", flags=re.MULTILINE)
REFERENCE = re.compile(r"\]\[([^\]]+)\]")
OBJECT = re.compile(r"^::: (\S+)$", flags=re.MULTILINE)
INCLUDED = re.compile(r'^--8<-- "([^":]+):page"$', flags=re.MULTILINE)
SECTION = re.compile(r"<!-- --8<-- \[start:page\] -->\n(.*)<!-- --8<-- \[end:page\] -->\n", flags=re.DOTALL)


def with_included(text: str, roots: Mapping[str, str]) -> str:
    """Return a page with what it includes of the root folder."""
    return INCLUDED.sub(lambda match: section_of(roots[match[1]]), text)


def section_of(text: str) -> str:
    """Return what a page takes of a file of the root folder: all but the places that its links lead to."""
    section = SECTION.search(text)
    assert section, "the lines `--8<-- [start:page]` and `--8<-- [end:page]` must stand in comments"
    return section[1]


def anchors(text: str) -> set[str]:
    """Return the anchors of a page: of its headings, and of the names that mkdocstrings describes there."""
    titles = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    slugs = [re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles]
    return {re.sub(r"-+", "-", slug) for slug in slugs} | set(OBJECT.findall(text))


def targets(text: str) -> Iterator[str]:
    """Yield where the links of a page lead, those of images among them."""
    plain = CODE.sub("", text)
    yield from INLINE_LINK.findall(plain)
    yield from (target for _, target in DEFINITION.findall(plain))


def broken_links(pages: Mapping[str, str], files: Iterable[str] = ()) -> list[str]:
    """Return the links that lead to no page, to no heading, to no file or out of docs/, and those without a place."""
    faults = []
    for name, text in pages.items():
        for target in targets(text):
            if re.match(r"https?:|mailto:", target):
                continue
            path, _, anchor = target.partition("#")
            linked = posixpath.normpath(posixpath.join(posixpath.dirname(name), path)) if path else name
            if linked not in pages and linked not in files:
                faults.append(f"{name} links to {target}, which is nothing in docs/")
            elif anchor and anchor not in anchors(pages.get(linked, "")):
                faults.append(f"{name} links to {target}, and {linked} has no such heading")
        defined = {name for name, _ in DEFINITION.findall(text)}
        for reference in set(REFERENCE.findall(CODE.sub("", text))) - defined:
            faults.append(f"{name} does not say where [{reference}] is")
    return faults


def menu_pages(nav: object) -> Iterator[str]:
    """Yield the pages of the menu of mkdocs.yml."""
    if isinstance(nav, str):
        yield nav
    else:
        for item in nav.values() if isinstance(nav, dict) else nav:
            yield from menu_pages(item)


def menu_faults(nav: object, pages: Iterable[str]) -> list[str]:
    """Return the pages that are in no menu, and what the menu has twice or what is not there."""
    listed, pages = list(menu_pages(nav)), set(pages)
    return [
        *(f"{name} is in no menu: add it to `nav` in mkdocs.yml" for name in sorted(pages - set(listed))),
        *(f"the menu has {name}, which is no page" for name in sorted(set(listed) - pages)),
        *(f"the menu has {name} more than once" for name in sorted({n for n in listed if listed.count(n) > 1})),
    ]


def reference_faults(pages: Mapping[str, str], public: Iterable[str]) -> list[str]:
    """Return the public names that are not on one reference page, and what is there and not public."""
    described = [
        found for name, text in pages.items() if name.startswith("reference/") for found in OBJECT.findall(text)
    ]
    return [
        *(f"{name} is on no page of docs/reference: add `::: {name}`" for name in public if name not in described),
        *(f"{name} is described, and not public" for name in described if name not in public),
        *(f"{name} is described more than once" for name in set(described) if described.count(name) > 1),
    ]
