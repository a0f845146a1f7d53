"""The picture of a graph shows its layers as text, apart from each other, without style or script."""

import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from keras_attn_export._report.layers import Layer, LayerGraph, Port
from keras_attn_export._report.picture import graph_svg

SVG = "{http://www.w3.org/2000/svg}"
TAGS = {SVG + tag for tag in ("svg", "g", "title", "rect", "text", "path")}
ATTRIBUTES = re.compile(
    "aria-label|class|d|fill|fill-opacity|font-size|font-weight|height|role|rx|stroke|stroke-dasharray|text-anchor|"
    "viewBox|width|x|y"
)
HOSTILE = ["<script>alert(1)</script>", "a\"b'c&d", "]]><g onload='x'>", "encoder/transformer_layer_11/output_dense"]
PARTS = [
    "stem",
    *(f"block_{n}_{part}" for n in range(1, 11) for part in ("grow", "conv", "norm", "relu", "sum", "pad")),
]
MANY = [f"{chr(97 + n % 26)}{n}" for n in range(400)]


def picture_of(names, skips=(1,), more=(), attention="", times=()):
    layers = [Layer(name, "attention" if name == attention else "dense", {"Add": 1}, 9, 36, ()) for name in names]
    edges = [edge for skip in skips for edge in zip(names, names[skip:], strict=False)]
    ports = [(Port(name, names[place : place + 1]),) for name, place in (("in", 0), ("out", len(names) - 1))]
    return ElementTree.fromstring(graph_svg(LayerGraph(tuple(layers), (*edges, *more), *ports), dict(times)))


def boxes(picture):
    """The left and top of each layer's box."""
    groups = [group for group in picture.findall(f"{SVG}g") if group.get("class").startswith("layer")]
    rects = {group.findtext(f"{SVG}title").partition("\n")[0]: group.find(f"{SVG}rect") for group in groups}
    return {name: (float(rect.get("x")), float(rect.get("y"))) for name, rect in rects.items()}


@pytest.mark.parametrize(
    ("names", "options", "shown"),
    [
        (HOSTILE, {}, HOSTILE),
        (["a\x1b[31m", "b", "c"], {"more": [("c", "b")]}, ["a�[31m", "b", "c"]),
        (MANY[:12], {"skips": (2, 5, 11)}, MANY[:12]),
        (PARTS, {"attention": "block_1_conv"}, ["block_1_grow", "block_1_conv", "block_1_*", "block_2_*"]),
        (MANY[:70], {"times": {"o40": 1.0}}, ["a0 … n39", "o40", "p41 … r69"]),
        (MANY, {"skips": (1, 2), "attention": MANY[200]}, [MANY[200]]),
    ],
    ids=["hostile names", "circle", "skips", "folded by name", "folded chains", "slices"],
)
def test_layers_are_shown_apart_and_as_text(names, options, shown):
    picture = picture_of(names, **options)
    assert {element.tag for element in picture.iter()} <= TAGS
    assert all(ATTRIBUTES.fullmatch(name) for element in picture.iter() for name in element.attrib)
    placed = boxes(picture)
    assert set(shown) <= set(placed)
    assert len(placed) <= 150
    for (x, y), (other_x, other_y) in pairwise(sorted(placed.values(), key=lambda place: place[::-1])):
        assert other_y - y >= 44 or other_x - x >= 196  # the size of a box


def test_shares_of_the_time_are_written_and_drawn():
    picture = picture_of(["first", "second"], times={"first": 3.0, "second": 1.0})
    assert [text.text for text in picture.iter(f"{SVG}text") if text.get("class") == "time"] == ["75%", "25%"]
    widths = [float(rect.get("width")) for rect in picture.iter(f"{SVG}rect") if rect.get("class") == "share"]
    assert widths == [135, 45]
    assert picture.get("aria-label").endswith("Most time: first 75%, second 25%.")
    assert "Most time" not in picture_of([]).get("aria-label")
