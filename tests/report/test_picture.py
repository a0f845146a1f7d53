"""The picture of a graph: what it shows and says, that it can be read, and that it carries no style or script."""

import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from keras_attn_export._report.arrangement import arranged
from keras_attn_export._report.layers import Layer, LayerGraph, Port
from keras_attn_export._report.picture import graph_svg

SVG = "{http://www.w3.org/2000/svg}"
ATTRIBUTES = re.compile(
    "aria-label|class|d|fill|fill-opacity|font-size|font-weight|height|role|rx|stroke|stroke-dasharray|text-anchor|"
    "viewBox|width|x|y"
)


def layer(name, kind="dense", weights=12_345):
    return Layer(name, kind, {"MatMul": 1, "Add": 2}, weights, 4 * weights, (f"{name}/MatMul",))


def graph(names, edges=None, kinds=()):
    layers = tuple(layer(name, dict(kinds).get(name, "dense")) for name in names)
    chain = tuple(pairwise(names)) if edges is None else tuple(edges)
    return LayerGraph(layers, chain, (Port("x", (names[0],)),), (Port("y", (names[-1],)),))


def drawn(*arguments, times=(), **options):
    return ElementTree.fromstring(graph_svg(graph(*arguments, **options), dict(times)))


def boxes(picture, kind="layer"):
    """Left, top, right and bottom of each box by the first line of its title."""
    found = {}
    for group in picture.findall(f"{SVG}g"):
        if group.get("class").split()[0] == kind:
            x, y, width, height = (float(group.find(f"{SVG}rect").get(name)) for name in ("x", "y", "width", "height"))
            found[group.findtext(f"{SVG}title").partition("\n")[0]] = (x, y, x + width, y + height)
    return found


def points(path):
    """Points on the curves and lines of an edge."""
    numbers = iter(re.findall(r"[MCV]|-?[\d.]+", path.get("d")))
    for command in numbers:
        take = {"M": 2, "C": 6, "V": 1}[command]
        values = [float(next(numbers)) for _ in range(take)]
        if command == "M":
            x, y = values
        elif command == "V":
            yield from ((x, y + (values[0] - y) * part / 20) for part in range(21))
            y = values[0]
        else:
            (ax, ay, bx, by, cx, cy) = values
            for part in range(21):
                t, u = part / 20, 1 - part / 20
                weights = u**3, 3 * u * u * t, 3 * u * t * t, t**3
                yield (
                    sum(w * v for w, v in zip(weights, (x, ax, bx, cx), strict=True)),
                    sum(w * v for w, v in zip(weights, (y, ay, by, cy), strict=True)),
                )
            x, y = cx, cy


def assert_readable(picture):
    placed = list((boxes(picture) | boxes(picture, "port")).values())
    for number, (left, top, right, bottom) in enumerate(placed):
        for other in placed[number + 1 :]:
            assert right <= other[0] or other[2] <= left or bottom <= other[1] or other[3] <= top
    edges = [path for path in picture.findall(f"{SVG}path") if path.get("class") == "edge"]
    for x, y in (point for path in edges for point in points(path)):
        assert not any(left + 1 < x < right - 1 and top + 1 < y < bottom - 1 for left, top, right, bottom in placed)
    x, y, width, height = map(float, picture.get("viewBox").split())
    for left, top, right, bottom in placed:
        assert x <= left
        assert y <= top
        assert right <= x + width
        assert bottom <= y + height


def test_a_chain():
    picture = drawn(["first", "second"], kinds={"second": "attention"}, times={"first": 3.0, "second": 1.0})
    assert_readable(picture)
    assert boxes(picture)["first"][3] < boxes(picture)["second"][1]
    assert [group.get("class") for group in picture.findall(f"{SVG}g")] == [
        "port input",
        "port output",
        "layer dense",
        "layer attention",
    ]
    texts = [text.text for text in picture.iter(f"{SVG}text")]
    assert texts == ["x", "y", "first", "dense, 12.3k weights", "75%", "second", "attention, 12.3k weights", "25%"]
    shares = [float(rect.get("width")) for rect in picture.iter(f"{SVG}rect") if rect.get("class") == "share"]
    track = next(float(rect.get("width")) for rect in picture.iter(f"{SVG}rect") if rect.get("class") == "track")
    assert shares == [0.75 * track, 0.25 * track]


def test_what_is_said_of_it():
    picture = drawn(["first", "second"], times={"first": 3.0, "second": 1.0, "not placed": 4.0})
    assert picture.get("role") == "img"
    assert picture.get("aria-label") == (
        "Graph of 2 layers with 24.7k weights, from x to y. Most time: first 38%, second 12%."
    )


@pytest.mark.parametrize("times", [{}, {"first": 0.0, "second": 0.0}])
def test_without_times_there_are_no_shares(times):
    picture = drawn(["first", "second"], times=times)
    assert not [rect for rect in picture.iter(f"{SVG}rect") if rect.get("class") in ("share", "track")]
    assert "Most time" not in picture.get("aria-label")


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", "a\"b'c&d", "\x00\x1b[31m", "]]><g onload='x'>"])
def test_names_are_text(name):
    picture = drawn([name, "next"], times={name: 1.0})
    assert {element.tag for element in picture.iter()} == {
        SVG + tag for tag in ("svg", "g", "title", "rect", "text", "path")
    }
    assert all(ATTRIBUTES.fullmatch(name) for element in picture.iter() for name in element.attrib)
    assert "".join(letter if letter.isprintable() else "�" for letter in name) in boxes(picture)


def test_no_style_of_its_own():
    svg = graph_svg(graph([f"layer_{n}" for n in range(5)]), {"layer_1": 1.0})
    assert not re.search(r"style|script|href|url\(|\bid=", svg)


def test_long_names_lose_their_middle():
    name = "encoder/transformer_layer_11/feedforward_output_dense"
    picture = drawn([name, "next"])
    assert name in boxes(picture)
    shown = next(text.text for text in picture.iter(f"{SVG}text") if "…" in text.text)
    assert len(shown) == 25
    assert name.startswith(shown.partition("…")[0])
    assert name.endswith(shown.partition("…")[2])


def test_edges_go_around_boxes():
    names = [f"n{number}" for number in range(12)]
    skips = [(names[a], names[b]) for a in range(12) for b in (a + 1, a + 2, a + 5, a + 11) if b < 12]
    assert_readable(drawn(names, skips))


def test_branches_stand_side_by_side():
    names = ["start", *(f"branch{n}" for n in range(6)), "end"]
    edges = [("start", name) for name in names[1:-1]] + [(name, "end") for name in names[1:-1]]
    picture = drawn(names, edges)
    assert_readable(picture)
    assert len({top for name, (_, top, _, _) in boxes(picture).items() if name.startswith("branch")}) == 1


def test_a_circle_is_drawn():
    picture = drawn(["a", "b", "c"], [("a", "b"), ("b", "c"), ("c", "a")])
    assert [path.get("class") for path in picture.findall(f"{SVG}path")].count("edge back") == 1
    assert len(boxes(picture)) == 3


@pytest.mark.parametrize("size", [1, 5, 60, 150])
def test_many_layers_that_nothing_folds(size):
    names = [f"layer{number:03d}x" for number in range(size)]
    skips = [(names[a], names[b]) for a in range(size) for b in (a + 1, a + 3, a + 7) if b < size]
    picture = drawn(names, skips)
    assert len(boxes(picture)) == size
    if size < 100:  # to look at each point of each edge takes seconds
        assert_readable(picture)


def test_blocks_are_folded_by_their_names():
    names = [
        "stem",
        *(f"block_{n}_{part}" for n in range(1, 11) for part in ("grow", "conv", "norm", "relu", "sum", "pad")),
        "top",
    ]
    times = {"block_3_conv": 1.0, "block_3_norm": 2.0, "top": 1.0}
    picture = drawn(names, kinds={"block_4_conv": "attention"}, times=times)
    inner = ["block_4_grow", "block_4_conv", "block_4_*"]
    blocks = [f"block_{n}_*" for n in range(1, 11)]
    assert list(boxes(picture)) == ["stem", *blocks[:3], *inner, *blocks[4:], "top"]
    texts = [text.text for text in picture.iter(f"{SVG}text")]
    assert "6 layers, 74.1k weights" in texts
    assert texts[texts.index("block_3_*") + 2] == "75%"
    assert len(picture.findall(f"{SVG}path")) == 2 * (13 + 2)  # a line and an arrow each


def test_chains_of_cheap_layers_are_folded():
    names = [f"{chr(97 + n % 26)}{chr(97 + n // 26)}" for n in range(70)]
    picture = drawn(names, times={names[40]: 1.0})
    assert list(boxes(picture)) == ["aa … nb", "ob", "pb … rc"]


def test_hundreds_of_layers_are_cut_into_slices():
    names = [f"{chr(97 + n % 26)}{n}" for n in range(400)]
    skips = [(names[a], names[b]) for a in range(400) for b in (a + 1, a + 2) if b < 400]
    picture = drawn(names, skips, kinds={"s200": "attention"})
    assert 50 < len(boxes(picture)) <= 150
    assert "s200" in boxes(picture)


def test_a_graph_without_layers():
    picture = ElementTree.fromstring(graph_svg(LayerGraph((), (), (Port("x", ()),), ()), {}))
    assert list(boxes(picture, "port")) == ["input x"]
    assert graph_svg(LayerGraph((), (), (), ()), {}).startswith("<svg")


def test_what_nothing_feeds_stands_above_its_reader():
    placed = arranged(dict.fromkeys("abcdef", 10.0), [("a", "b"), ("b", "c"), ("c", "d"), ("f", "e"), ("e", "d")])
    assert [sorted(row) for row in placed.rows] == [
        ["a"],
        ["b", "f"],
        ["c", "e"],
        ["d"],
    ]
