"""Graphs without Spark: their definitions, how they are arranged, drawn and told."""

from __future__ import annotations

import re
from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath

from quire.errors import StoreCorrupt
from quire.graphs import (
    GraphDefinition,
    GraphSight,
    InputSight,
    QueueDefinition,
    QueueSight,
    StepDefinition,
    StepSight,
    draw,
    explain,
)
from quire.graphs.drawing import count
from quire.graphs.layout import arrange
from quire.limits import DRAWN_WIDTH

SHOP = GraphDefinition(
    "shop",
    (QueueDefinition("raw", {"capacity": "1000000"}), QueueDefinition("unused <&>")),
    (
        StepDefinition("parse", "step", ("raw",), ("orders", "payments"), "raw.dead", 10, 4096),
        StepDefinition("match", "streaming", ("orders", "payments"), ("bills",), watermark="1 s"),
        StepDefinition("lake", "terminal", ("bills", "raw")),
    ),
)


def test_a_definition_is_kept_as_it_is() -> None:
    """A definition is kept as it is, and what is none is told."""
    assert GraphDefinition.of_bytes(SHOP.to_bytes()) == SHOP
    assert SHOP.queue_names == (
        "raw", "unused <&>", "orders", "payments", "raw.dead", "bills",
    )  # fmt: skip
    for wrong in (b"", b"[]", b"{}", b'{"name": "a", "queues": 5, "steps": []}'):
        with pytest.raises(StoreCorrupt, match="start the graph again"):
            GraphDefinition.of_bytes(wrong)


def test_a_step_is_told_by_its_queues() -> None:
    """Also where it reads or writes none."""
    steps = (
        StepDefinition("a", "step", ("in",), ("out",)),
        StepDefinition("b", "terminal", ("in",)),
        StepDefinition("c", "step", (), ("out",)),
    )
    picture = draw(GraphDefinition("g", (), steps))
    assert "<title>step a: in -&gt; out</title>" in picture
    assert "<title>terminal b: in</title>" in picture
    assert "<title>step c: -&gt; out</title>" in picture


def test_layers_follow_the_edges() -> None:
    """From left to right, each edge from one layer to the next, through its bends."""
    edges = [("a", "s"), ("s", "b"), ("s", "c"), ("b", "t"), ("c", "t"), ("a", "t"), ("t", "b")]
    found = arrange(["a", "b", "c", "s", "t"], edges)
    depth = {node: n for n, layer in enumerate(found.layers) for node in layer}
    assert [sorted(n for n in layer if ">" not in n) for layer in found.layers] == [
        ["a"], ["s"], ["b", "c"], ["t"],
    ]  # fmt: skip
    for edge, route in found.routes.items():
        assert (route[0], route[-1]) == edge
        step = -1 if edge == ("t", "b") else 1  # which closes a circle
        assert all(depth[end] - depth[start] == step for start, end in pairwise(route))
    assert arrange([], []).layers == []
    assert arrange(["a"], [("a", "a")]).layers == [["a"]]


def test_crossings_are_untangled() -> None:
    """Where there is an order without any."""
    edges = [("a", "z"), ("b", "y"), ("c", "x")]
    first, second = arrange(["a", "b", "c", "x", "y", "z"], edges).layers
    assert [dict(edges)[node] for node in first] == second


def test_a_picture_stands_alone() -> None:
    """It is well-formed whatever names hold, and refers to nothing outside."""
    svg = draw(SHOP, phases={"match": "failed"})
    texts = ["".join(each.itertext()) for each in ET.fromstring(svg).iter()]
    assert "unused <&>" in texts
    assert "failed, streaming" in texts
    assert "href" not in svg
    assert svg.count("<path class") == 9


def test_an_edge_that_goes_back_stands_apart() -> None:
    """Two steps that hand on to each other: no arrow ends where another begins."""
    steps = (
        StepDefinition("there", "step", ("a",), ("b",)),
        StepDefinition("back", "step", ("b",), ("a",)),
    )
    svg = draw(GraphDefinition("g", (), steps))
    paths = re.findall(r'<path class="edge" d="M(\S+) ([^C]*)C[^"]* ([\d.]+) ([\d.]+)"', svg)
    (back,) = [path for path in paths if float(path[0]) > float(path[2])]
    (forth,) = [path for path in paths if abs(float(path[0]) - float(back[2])) <= 2]
    assert float(back[3]) - float(forth[1]) > 10


NAMES = (
    "W" * 40,
    "dead.letters.of.ingest",
    "a-queue_with.a-long-name",
    "iiiiiiiiiiiiiiiiiiii",
    "é",
)


def test_every_text_has_room_in_its_node() -> None:
    """As wide as it is in bold DejaVu Sans, which is a wide font; lags are told whole."""
    font = FontProperties(family="DejaVu Sans", weight="bold")
    dead = NAMES[0]
    steps = (StepDefinition("ingest_and_validate_all", "step", NAMES[1:], ("out",), dead),)
    behind = InputSight(NAMES[1], 1, 123_456_789, 5)
    sight = GraphSight(
        {steps[0].name: StepSight(steps[0].name, (behind,), 4, True, 0, 3)},
        {name: QueueSight(name, "topic", 123_456_789, 5, 10, None) for name in (*NAMES, "out")},
    )
    svg = draw(GraphDefinition("g", (), steps), sight, {steps[0].name: "retrying"})
    texts = list(ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text"))
    assert len(texts) == 2 * len((*NAMES, "out", "step"))
    for text in texts:
        size = float(text.attrib["font-size"])
        path = TextPath((0, 0), text.text or "", size=size, prop=font)
        assert path.get_extents().width <= DRAWN_WIDTH - 10, text.text
    shown = [text.text for text in texts]
    assert "retrying, 123M behind" in shown
    assert "dead.letters.of.ingest" in shown
    assert "; paused; " in svg
    assert svg.count('class="edge dead"') == svg.count("url(#quire-dead-tip)") == 1


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (0, "0"),
        (9_999, "9,999"),
        (10_000, "10.0k"),
        (99_960, "100k"),
        (999_400, "999k"),
        (999_600, "1.0M"),
        (123_456_789, "123M"),
        (2 * 10**9, "2.0G"),
        (5 * 10**15, "5000T"),
    ],
)
def test_numbers_are_short(number: int, words: str) -> None:
    """Three digits or four, and a unit."""
    assert count(number) == words


def test_a_graph_is_told() -> None:
    """What each step reads, where its batches end, and what it commits."""
    text = explain(SHOP)
    for words in (
        "graph shop", "  raw: bytes; capacity 1000000", "  dead letters go to raw.dead",
        "  cuts: up to 10 messages or 4 KiB",
        "  commits: all outputs, dead letters, positions, state, number, in one transaction",
        "messages up to 1 s late", "of all inputs up to one point of the commit order",
        "when the function has returned (at least once)",
    ):  # fmt: skip
        assert words in text
    seen = StepSight("match", (InputSight("orders", 0, 2, 3),), None, False, 0, 0)
    now = explain(SHOP, GraphSight({"match": seen}, {}))
    assert "now: 2 messages (3 bytes) of orders to read" in now
