"""The site of docs/: its links lead somewhere, its menu has every page, its reference every public name."""

import importlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

import command_line_page
import pytest
import yaml
from built_site import built_faults, first_sentence, outside_the_menu, undescribed
from site_pages import (
    DEFINITION,
    INCLUDED,
    broken_links,
    menu_faults,
    reference_faults,
    targets,
    with_included,
)

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
SITE = ROOT / "build" / "site"
MODULES = ("keras_attn", "keras_attn.callbacks", "keras_attn.decoding", "keras_attn.migrate", "keras_attn_export")
CONFIGURATION = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
FILES = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*") if path.is_file() and path.suffix != ".md"}
SOURCES = {path.relative_to(DOCS).as_posix(): path.read_text(encoding="utf-8") for path in sorted(DOCS.rglob("*.md"))}
ROOTS = {path.name: path.read_text(encoding="utf-8") for path in ROOT.glob("*.md")}
PAGES = {name: with_included(text, ROOTS) for name, text in SOURCES.items()}
INCLUDING = {name: INCLUDED.findall(text)[0] for name, text in SOURCES.items() if INCLUDED.search(text)}


def public_names():
    """Every public name, below the module that offers it."""
    return [f"{module}.{name}" for module in MODULES for name in importlib.import_module(module).__all__]


# The sources.


def test_no_link_is_broken():
    assert broken_links(PAGES, FILES) == []


def test_every_page_is_in_the_menu():
    assert menu_faults(CONFIGURATION["nav"], SOURCES) == []


def test_every_public_name_is_in_the_reference():
    assert reference_faults(SOURCES, public_names()) == []
    assert [name for name in public_names() if len(first_sentence(name)) < 20] == []


def test_the_first_page_leads_to_every_other():
    index = SOURCES["index.md"]
    linked = {target.partition("#")[0] for target in targets(index)}
    assert set(SOURCES) - {"index.md"} - linked == set()


@pytest.mark.parametrize("name", sorted(INCLUDING))
def test_links_of_included_files_lead_to_the_same_pages(name):
    """In the root folder, where the file is read too, and on the site."""
    there = dict(DEFINITION.findall(ROOTS[INCLUDING[name]]))
    here = dict(DEFINITION.findall(SOURCES[name]))
    site_names = {root: included for included, root in INCLUDING.items()}
    assert here == {
        key: "#".join([site_names.get(path, path.removeprefix("docs/")), *anchor])
        for key, (path, *anchor) in ((key, target.split("#")) for key, target in there.items())
    }
    for target in there.values():
        assert (ROOT / target.partition("#")[0]).is_file()


def test_the_included_files_are_those_with_a_page():
    assert INCLUDING == {
        "changelog.md": "CHANGELOG.md",
        "contributing.md": "CONTRIBUTING.md",
        "security.md": "SECURITY.md",
    }


def test_the_site_asks_no_other_server_for_anything():
    assert CONFIGURATION["theme"]["font"] is False
    assert {"extra_javascript", "extra_css"}.isdisjoint(CONFIGURATION)


def test_the_command_line_is_the_one_of_help():
    shown = command_line_page.PAGE.read_text(encoding="utf-8")
    assert shown == command_line_page.page(), "write it anew: python tests/support/command_line_page.py"


@pytest.mark.parametrize("name", command_line_page.subcommands())
def test_the_command_line_has_every_option_of_help(name):
    done = subprocess.run(
        [sys.executable, "-m", "keras_attn_export", name, "--help"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    section = SOURCES["reference/command-line.md"].partition(f"## keras-attn {name}\n")[2].partition("\n## ")[0]
    shown = set(re.findall(r"^\| `(--[\w-]+)", section, flags=re.MULTILINE))
    assert shown == set(re.findall(r"^  (--[\w-]+)", done.stdout, flags=re.MULTILINE)) - {"--debug"}


def docstring_names():
    """The names of scripts/docstrings.py, which mkdocstrings loads by its path."""
    script = ROOT / "scripts" / "docstrings.py"
    names = {"__name__": "docstrings"}
    exec(compile(script.read_text(encoding="utf-8"), script, "exec"), names)
    return names


def test_docstrings_have_sections_that_are_known():
    text = (
        "Line.\n\nCall arguments:\n    keys: Floats,\n        `B`.\n    values, training: More.\n\n"
        "Example:\n    >>> x: int = 1\n\nSee `docs/export.md`."
    )
    assert docstring_names()["with_known_sections"](text) == (
        "Line.\n\nCall arguments:\n    - `keys`: Floats,\n        `B`.\n    - `values`, `training`: More.\n\n"
        "Examples:\n    >>> x: int = 1\n\nSee [the page on export](../export.md)."
    )


def test_signatures_show_texts_and_nothing_private(tmp_path):
    (tmp_path / "sample.py").write_text(
        "from dataclasses import dataclass, field\nSLOW, fast, SIZE = 'slow', 'fast', 2\nWAY = 'way'\n"
        "def f(way=WAY, other=fast, size=SIZE, unknown=NOWHERE, *, text='t', number=1): ...\n"
        "@dataclass\nclass Pair:\n    path: str\n    kind: str = WAY\n    _open: dict = field(default_factory=dict)\n",
        encoding="utf-8",
    )
    names = docstring_names()
    griffe = names["griffe"]
    extensions = griffe.load_extensions(names["Readable"])
    sample = griffe.load("sample", search_paths=[tmp_path], extensions=extensions)
    assert [str(each.default) for each in sample["f"].parameters] == ["'way'", "fast", "SIZE", "NOWHERE", "'t'", "1"]
    assert [(each.name, each.default) for each in sample["Pair"].parameters][1:] == [("path", None), ("kind", "'way'")]


# Faults that are put in are found.


def test_a_broken_link_is_found():
    pages = {"a.md": "# A\n[b](b.md#b-c)\n![p](p.png)\n[w](https://example.org/x.md)\n", "b.md": "# B: c\n[a](a.md)\n"}
    assert broken_links(pages, ["p.png"]) == []
    for old, new, fault in (
        ("b.md#b-c", "c.md", "a.md links to c.md, which is nothing in docs/"),
        ("b.md#b-c", "../b.md", "a.md links to ../b.md, which is nothing in docs/"),
        ("b.md#b-c", "b.md#c", "a.md links to b.md#c, and b.md has no such heading"),
        ("b.md#b-c", "#b", "a.md links to #b, and a.md has no such heading"),
        ("p.png", "q.png", "a.md links to q.png, which is nothing in docs/"),
        ("[b](b.md#b-c)", "[b][where]", "a.md does not say where [where] is"),
        ("[b](b.md#b-c)", "[b][w]\n\n[w]: c.md", "a.md links to c.md, which is nothing in docs/"),
    ):
        assert broken_links({**pages, "a.md": pages["a.md"].replace(old, new)}, ["p.png"]) == [fault]


def test_code_is_no_link():
    assert broken_links({"a.md": "`x[0](y)` and\n```python\nx[0](y)\nz[0][i]\n```\n<!-- [b](c.md) -->\n"}) == []


def test_a_page_in_no_menu_is_found():
    nav = [{"Home": "index.md"}, {"More": [{"A": "a.md"}, "b.md"]}]
    assert menu_faults(nav, ["index.md", "a.md", "b.md"]) == []
    assert menu_faults(nav, ["index.md", "a.md", "b.md", "c.md"]) == [
        "c.md is in no menu: add it to `nav` in mkdocs.yml"
    ]
    assert menu_faults(nav, ["index.md", "a.md"]) == ["the menu has b.md, which is no page"]
    assert menu_faults([*nav, "a.md"], ["index.md", "a.md", "b.md"]) == ["the menu has a.md more than once"]


def test_a_name_that_is_not_described_is_found():
    pages = {"reference/a.md": "# A\n\n::: p.x\n\n::: p.y\n", "b.md": "::: p.z\n"}
    assert reference_faults(pages, ["p.x", "p.y"]) == []
    assert reference_faults(pages, ["p.x", "p.y", "p.z"]) == ["p.z is on no page of docs/reference: add `::: p.z`"]
    assert reference_faults(pages, ["p.x"]) == ["p.y is described, and not public"]
    assert reference_faults({**pages, "reference/c.md": "::: p.x\n"}, ["p.x", "p.y"]) == [
        "p.x is described more than once"
    ]


# The site that is built.


@pytest.mark.documents
def test_the_site_builds_and_is_whole():
    """By the command of scripts/docs, which itself calls scripts/setup: that may clear what this test runs in."""
    packages = ROOT / "build" / "packages"
    packages.mkdir(parents=True, exist_ok=True)
    if not (packages / "keras_attn_export").exists():
        (packages / "keras_attn_export").symlink_to("../../export")
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
    assert " ".join(command[2:]) in (ROOT / "scripts" / "docs").read_text(encoding="utf-8")
    shutil.rmtree(SITE, ignore_errors=True)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert built_faults(SITE) == []
    assert outside_the_menu(SITE, CONFIGURATION["nav"]) == []
    assert undescribed(SITE, public_names()) == []


def test_a_broken_built_page_is_found(tmp_path):
    good = '<h1 id="a">A</h1><a href="../b.html#b"></a><img src="p.png"><a href="https://example.org"></a>'
    (tmp_path / "x").mkdir()
    (tmp_path / "b.html").write_text('<h1 id="b">B</h1><a href="x/a.html"></a>', encoding="utf-8")
    (tmp_path / "x" / "p.png").touch()
    for old, new, faults in (
        ("", "", []),
        ("b.html", "c.html", ["x/a.html links to ../c.html#b"]),
        ("#b", "#c", ["x/a.html links to ../b.html#c, and there is no such anchor"]),
        ("p.png", "q.png", ["x/a.html links to q.png"]),
        ("p.png", "https://example.org/p.png", ["x/a.html loads https://example.org/p.png"]),
    ):
        (tmp_path / "x" / "a.html").write_text(good.replace(old, new), encoding="utf-8")
        assert built_faults(tmp_path) == faults


def test_a_built_page_outside_the_menu_is_found(tmp_path):
    nav = [{"Home": "index.md"}, {"A": "a.md"}]
    (tmp_path / "index.html").write_text('<a href="a.html"></a>', encoding="utf-8")
    (tmp_path / "a.html").touch()
    assert outside_the_menu(tmp_path, nav) == []
    (tmp_path / "b.html").touch()
    assert outside_the_menu(tmp_path, nav) == ["b.html"]
    assert outside_the_menu(tmp_path, [*nav, {"B": "b.md"}]) == ["b.html"]
    assert outside_the_menu(tmp_path, [*nav, {"B": "b.md"}, {"C": "c.md"}]) == ["b.html", "c.html"]


def test_a_name_without_its_docstring_is_found(tmp_path):
    page = tmp_path / "reference" / "a.html"
    page.parent.mkdir()
    name = "keras_attn.coverage"
    page.write_text(f'<h2 id="{name}">coverage</h2><p>{first_sentence(name)}</p>', encoding="utf-8")
    assert undescribed(tmp_path, [name]) == []
    page.write_text(f'<h2 id="{name}">coverage</h2><h2 id="x">x</h2><p>{first_sentence(name)}</p>', encoding="utf-8")
    assert undescribed(tmp_path, [name]) == [name]


@pytest.mark.parametrize("arguments", [["--no-such-option"], ["--serve", "127.0.0.1:8000", "more"], [""]])
def test_wrong_usage_of_the_script(arguments):
    done = subprocess.run(
        [ROOT / "scripts" / "docs", *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (2, "usage: scripts/docs [--serve [HOST:PORT]]\n")
