"""The layout of a drawn graph: in layers from left to right, with few crossings.

The layers are those of the longest path from the left; what would close a circle is drawn
backwards. Edges over several layers have a place of their own in those between. The order within a
layer is that of the mean place of the neighbours, as Sugiyama, Tagawa and Toda (1981) have it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from msgspec import Struct, field

from quire.limits import LAYOUT_PASSES

Edge = tuple[str, str]


class GraphLayout(Struct):
    """Nodes and bends by layer, from top to bottom; edges by the bends that they go through."""

    layers: list[list[str]] = field(default_factory=list)
    routes: dict[Edge, list[str]] = field(default_factory=dict)  # their nodes and bends, in order


def arrange(nodes: Sequence[str], edges: Sequence[Edge]) -> GraphLayout:
    """Give each node a place. An edge that closes a circle goes back to an earlier layer."""
    backward = _backward(nodes, edges)
    forward = [edge for edge in edges if edge not in backward]
    depth = _depths(nodes, forward)
    found = GraphLayout([[] for _ in range(max(depth.values(), default=-1) + 1)])
    for node in nodes:
        found.layers[depth[node]].append(node)
    for edge in edges:
        start, end = (edge[1], edge[0]) if edge in backward else edge
        bends = [f"{start}>{end}>{layer}" for layer in range(depth[start] + 1, depth[end])]
        for layer, bend in enumerate(bends, depth[start] + 1):
            found.layers[layer].append(bend)
        route = [start, *bends, end]
        found.routes[edge] = route[::-1] if edge in backward else route
    _untangle(found)
    return found


def _backward(nodes: Sequence[str], edges: Sequence[Edge]) -> set[Edge]:
    """The edges that close circles, as met from the first node on."""
    after: dict[str, list[str]] = {node: [] for node in nodes}
    for start, end in edges:
        after[start].append(end)
    state: dict[str, int] = {}  # 1: on the path, 2: done
    found: set[Edge] = set()
    for first in nodes:
        path = [] if first in state else [(first, iter(after[first]))]
        state.setdefault(first, 1)
        while path:
            node, rest = path[-1]
            following = next(rest, None)
            if following is None:
                state[node] = 2
                path.pop()
            elif state.get(following) == 1:
                found.add((node, following))
            elif following not in state:
                state[following] = 1
                path.append((following, iter(after[following])))
    return found


def _depths(nodes: Sequence[str], edges: Sequence[Edge]) -> dict[str, int]:
    depth = dict.fromkeys(nodes, 0)
    changed = True
    while changed:  # no circles are left: it ends after as many rounds as there are layers
        changed = False
        for start, end in edges:
            if depth[end] <= depth[start]:
                depth[end] = depth[start] + 1
                changed = True
    return depth


def _untangle(layout: GraphLayout) -> None:
    before: dict[str, list[str]] = {}
    after: dict[str, list[str]] = {}
    for route in layout.routes.values():
        for start, end in pairwise(route):
            after.setdefault(start, []).append(end)
            before.setdefault(end, []).append(start)
    for number in range(LAYOUT_PASSES):
        downwards = number % 2 == 0
        layers = layout.layers if downwards else layout.layers[::-1]
        for fixed, moved in pairwise(layers):
            place = {node: index for index, node in enumerate(fixed)}
            own = {node: index for index, node in enumerate(moved)}

            def mean(node: str, place: dict[str, int] = place, own: dict[str, int] = own) -> float:
                beside = [*before.get(node, ()), *after.get(node, ())]
                places = [place[each] for each in beside if each in place]
                return sum(places) / len(places) if places else own[node]

            moved.sort(key=mean)
