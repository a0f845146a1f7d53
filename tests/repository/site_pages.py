"""Where the links of pages lead, and what the menu of the site has."""

import re

CODE = re.compile(r"^(`{3,}).*?^\1$|<!--.*?-->|`[^`\n]+`", flags=re.MULTILINE | re.DOTALL)
INLINE_LINK = re.compile(r"\]\(([^)\s]+)\)")
DEFINITION = re.compile(r"^\[([^\]]+)\]: (\S+)$", flags=re.MULTILINE)


def targets(text):
    """Yield where the links of a page lead, those of images among them."""
    plain = CODE.sub("", text)
    yield from INLINE_LINK.findall(plain)
    yield from (target for _, target in DEFINITION.findall(plain))


def menu_pages(nav):
    if isinstance(nav, str):
        yield nav
    else:
        for item in nav.values() if isinstance(nav, dict) else nav:
            yield from menu_pages(item)
