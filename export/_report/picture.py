"""A picture of a graph by layers, as SVG without style: its colours come from the classes of the page around it."""

from __future__ import annotations

from collections.abc import Mapping
from xml.sax.saxutils import escape, quoteattr

from .arrangement import Arrangement, Bend, Node, arranged
from .folding import folded
from .layers import OTHER, Layer, LayerGraph

WIDTH, HEIGHT = 196.0, 44.0  # of a layer's box
PORT = 24.0  # the height of an input or output
ROW_GAP = 24.0
MARGIN = 8.0
LETTER = 7.4  # the width of a letter at most, in names of layers
MOST_LETTERS = 25
KINDS = ("attention", "convolution", "dense", "embedding", "loop", "normalization", "recurrent")
INPUT, LAYER, OUTPUT = "input", "layer", "output"


def graph_svg(graph: LayerGraph, times: Mapping[str, float]) -> str:
    """Return a picture of the layers from inputs to outputs, with their weights and their shares of the time.

    Args:
        graph: The layers; more than are readable are folded into groups.
        times: The time of each layer; without any, no shares are drawn. Their sum is the whole, other names included.
    """
    drawn, shares = folded(graph, _shares(times))
    layers = {(LAYER, layer.name): layer for layer in drawn.layers}
    inputs = {(INPUT, port.name): port for port in drawn.inputs}
    outputs = {(OUTPUT, port.name): port for port in drawn.outputs}
    widths: dict[Node, float] = {node: _port_width(node[1]) for node in (*inputs, *outputs)}
    widths |= dict.fromkeys(layers, WIDTH)
    edges: list[tuple[Node, Node]] = [((LAYER, source), (LAYER, target)) for source, target in drawn.edges]
    edges += [(node, (LAYER, layer)) for node, port in inputs.items() for layer in port.layers]
    edges += [((LAYER, layer), node) for node, port in outputs.items() for layer in port.layers]
    placed = arranged({node: widths[node] for node in (*inputs, *layers, *outputs)}, edges)
    tops, bottoms, height = _heights(placed)
    parts = [_step(placed, step, tops, bottoms) for step in placed.steps]
    parts += [_backward(placed, edge, tops, bottoms) for edge in placed.backward]
    for node in (*inputs, *outputs):
        parts.append(_port(node, placed.middles[node], tops[node], widths[node]))
    for place, layer in layers.items():
        share = shares.get(layer.name)
        parts.append(_layer(layer, placed.middles[place], tops[place], share))
    size = f"{_n(placed.width + 2 * MARGIN)} {_n(height + 2 * MARGIN)}"
    width, tall = size.split()
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" class="graph" role="img" '
        f"aria-label={quoteattr(_clean(_said(graph, times)))} "
        f'viewBox="{_n(-MARGIN)} {_n(-MARGIN)} {size}" width="{width}" height="{tall}" font-size="12">\n'
        + "\n".join(parts)
        + "\n</svg>"
    )


def _shares(times: Mapping[str, float]) -> dict[str, float]:
    total = sum(times.values())
    return {name: time / total for name, time in times.items()} if total > 0 else {}


def _said(graph: LayerGraph, times: Mapping[str, float]) -> str:
    """Return in words what is seen."""
    inputs = ", ".join(port.name for port in graph.inputs) or "no input"
    outputs = ", ".join(port.name for port in graph.outputs) or "no output"
    weights = sum(layer.weights for layer in graph.layers)
    said = f"Graph of {len(graph.layers)} layers with {_count(weights)} weights, from {inputs} to {outputs}."
    shares = {name: share for name, share in _shares(times).items() if any(name == each.name for each in graph.layers)}
    most = sorted(shares, key=lambda name: -shares[name])[:3]
    return said + (f" Most time: {', '.join(f'{name} {_percent(shares[name])}' for name in most)}." if most else "")


def _heights(placed: Arrangement) -> tuple[dict[Node, float], dict[Node, float], float]:
    """Return top and bottom of everything, and the height of all; what passes a row is as high as the row."""
    tops: dict[Node, float] = {}
    bottoms: dict[Node, float] = {}
    y = 0.0
    for row in placed.rows:
        tall = max(_height(node) for node in row)
        for node in row:
            own = tall if isinstance(node, Bend) else _height(node)
            tops[node] = y + (tall - own) / 2
            bottoms[node] = tops[node] + own
        y += tall + ROW_GAP
    return tops, bottoms, max(0.0, y - ROW_GAP)


def _height(node: Node) -> float:
    if isinstance(node, Bend):
        return 0.0
    return HEIGHT if isinstance(node, tuple) and node[0] == LAYER else PORT


def _step(
    placed: Arrangement, step: tuple[Node, Node], tops: Mapping[Node, float], bottoms: Mapping[Node, float]
) -> str:
    """Return a part of an edge from one row to the next, with an arrow where it ends at a box."""
    a, b = step
    x, y, to_x, to_y = placed.middles[a], bottoms[a], placed.middles[b], tops[b]
    middle = (y + to_y) / 2
    curve = f"M{_n(x)} {_n(y)}C{_n(x)} {_n(middle)} {_n(to_x)} {_n(middle)} {_n(to_x)} {_n(to_y)}"
    if isinstance(b, Bend):
        return _line(curve + f"V{_n(bottoms[b])}")
    return _line(curve) + _arrow(to_x, to_y)


def _backward(
    placed: Arrangement, edge: tuple[Node, Node], tops: Mapping[Node, float], bottoms: Mapping[Node, float]
) -> str:
    """Return an edge of a circle, which goes up beside the boxes."""
    a, b = edge
    x, to_x = placed.middles[a] + WIDTH / 2, placed.middles[b] + WIDTH / 2
    y, to_y = (tops[a] + bottoms[a]) / 2, (tops[b] + bottoms[b]) / 2
    out = max(x, to_x) + ROW_GAP
    curve = f"M{_n(x)} {_n(y)}C{_n(out)} {_n(y)} {_n(out)} {_n(to_y)} {_n(to_x)} {_n(to_y)}"
    return _line(curve, "edge back", ' stroke-dasharray="4 3"')


def _line(path: str, name: str = "edge", more: str = "") -> str:
    return f'<path class="{name}" fill="none" stroke="currentColor"{more} d="{path}"/>'


def _arrow(x: float, y: float) -> str:
    return f'<path class="arrow" fill="currentColor" d="M{_n(x)} {_n(y)}l-3.5 -6h7z"/>'


def _port(node: tuple[str, str], middle: float, top: float, width: float) -> str:
    kind, name = node
    return (
        f'<g class="port {kind}"><title>{escape(kind)} {_text(name)}</title>'
        f"{_box(middle - width / 2, top, width, PORT, PORT / 2)}"
        f'<text class="name" text-anchor="middle" fill="currentColor" x="{_n(middle)}" y="{_n(top + 16)}">'
        f"{_text(_short(name))}</text></g>"
    )


def _layer(layer: Layer, middle: float, top: float, share: float | None) -> str:
    left, inner = middle - WIDTH / 2, WIDTH - 16
    kind = next((each for each in KINDS if layer.kind in (each, f"{each} block")), "other")
    name, told = layer.name, f"{layer.kind}, {_count(layer.weights)} weights" if layer.weights else layer.kind
    if name.startswith(OTHER):
        name, told = (OTHER if layer.kind == "operators" else layer.kind), "between layers"
    parts = [
        f'<g class="layer {kind}"><title>{_text(_title(layer, share))}</title>',
        _box(left, top, WIDTH, HEIGHT, 6),
        f'<text class="name" fill="currentColor" font-weight="600" x="{_n(left + 8)}" y="{_n(top + 17)}">'
        f"{_text(_short(name))}</text>",
        f'<text class="kind" fill="currentColor" font-size="11" x="{_n(left + 8)}" y="{_n(top + 32)}">'
        f"{_text(told)}</text>",
    ]
    if share is not None:
        parts += [
            f'<text class="time" fill="currentColor" font-size="11" text-anchor="end" x="{_n(left + WIDTH - 8)}" '
            f'y="{_n(top + 32)}">{_percent(share)}</text>',
            f'<rect class="track" fill="currentColor" fill-opacity="0.12" x="{_n(left + 8)}" y="{_n(top + 37)}" '
            f'width="{_n(inner)}" height="3"/>',
            f'<rect class="share" fill="currentColor" x="{_n(left + 8)}" y="{_n(top + 37)}" '
            f'width="{_n(inner * share)}" height="3"/>',
        ]
    return "".join(parts) + "</g>"


def _title(layer: Layer, share: float | None) -> str:
    """Return what a pointer that rests on a layer reads."""
    most = sorted(layer.operators.items(), key=lambda item: -item[1])[:6]
    operators = ", ".join(f"{count} {name}" for name, count in most) + (", …" if len(layer.operators) > 6 else "")
    time = f"\n{_percent(share)} of the time" if share is not None else ""
    return f"{layer.name}\n{layer.kind}, {layer.weights:,} weights{time}\n{operators}"


def _box(x: float, y: float, width: float, height: float, radius: float) -> str:
    return (
        f'<rect class="box" fill="none" stroke="currentColor" x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" '
        f'height="{_n(height)}" rx="{_n(radius)}"/>'
    )


def _port_width(name: str) -> float:
    return len(_short(name)) * LETTER + 24


def _short(name: str) -> str:
    """Return a name that fits into a box: without its middle, since both ends tell layers apart."""
    if len(name) <= MOST_LETTERS:
        return name
    kept = MOST_LETTERS - 1
    return f"{name[: kept // 2]}…{name[-(kept - kept // 2) :]}"


def _text(text: str) -> str:
    return escape(_clean(text))


def _clean(text: str) -> str:
    """Return a text without what XML cannot hold."""
    return "".join(letter if letter.isprintable() or letter == "\n" else "\N{REPLACEMENT CHARACTER}" for letter in text)


def _count(count: int) -> str:
    """Return a number of weights in three digits or so."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= size:
            return f"{count / size:.3g}{unit}"
    return str(count)


def _percent(share: float) -> str:
    if share >= 0.995:
        return "100%"
    return f"{share:.0%}" if share >= 0.01 else "<1%" if share > 0 else "0%"


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
