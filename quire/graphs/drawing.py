"""A graph as a picture: SVG, with queues and steps in layers, and how far behind each step is.

Its text is made to fit into the boxes in whichever font its reader has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from html import escape
from os import PathLike, fspath
from typing import Final

from quire.env import OsEnv
from quire.errors import DiskFull, InvalidArgument
from quire.limits import (
    DRAWN_ACROSS,
    DRAWN_DOWN,
    DRAWN_HEIGHT,
    DRAWN_MARGIN,
    DRAWN_NAME_SIZE,
    DRAWN_PADDING,
    DRAWN_SMALLEST,
    DRAWN_WIDTH,
    DRAWN_WORDS_SIZE,
)

from .definition import GraphDefinition, StepDefinition
from .graph_progress import GraphSight, QueueSight, StepSight
from .layout import GraphLayout, arrange

_STYLE: Final = """
.quire text { font-family: system-ui, "Helvetica Neue", Arial, sans-serif; text-anchor: middle; }
.quire .name { font-weight: 600; fill: #27313d; }
.quire .small { fill: #566373; }
.quire .late { fill: #b45f06; font-weight: 600; } .quire .bad { fill: #b3261e; font-weight: 600; }
.quire path.edge { fill: none; stroke: #8a96a5; stroke-width: 1.5; }
.quire path.dead { stroke: #b3261e; stroke-dasharray: 4 3; }
"""


def draw(
    definition: GraphDefinition,
    sight: GraphSight | None = None,
    phases: Mapping[str, str] | None = None,
) -> str:
    """The picture. `phases`: what the steps do, by step, where somebody knows."""
    titles = {f"q:{name}": name for name in definition.queue_names}
    titles |= {f"s:{step.name}": step.name for step in definition.steps}
    edges = [(f"q:{q}", f"s:{step.name}") for step in definition.steps for q in step.inputs]
    edges += [(f"s:{step.name}", f"q:{q}") for step in definition.steps for q in step.outputs]
    dead = {(f"s:{s.name}", f"q:{s.dead}") for s in definition.steps if s.dead is not None}
    layout = arrange(list(titles), edges)
    places = _places(layout)
    rows = max(map(len, layout.layers), default=1)
    width = 2 * DRAWN_MARGIN + (max(1, len(layout.layers)) - 1) * DRAWN_ACROSS + DRAWN_WIDTH
    height = 2 * DRAWN_MARGIN + (rows - 1) * DRAWN_DOWN + DRAWN_HEIGHT
    steps = {step.name: step for step in definition.steps}
    parts = [
        _head(definition.name, width, height),
    ]
    parts += [
        _edge([places[at] for at in route], is_dead=edge in dead)
        for edge, route in layout.routes.items()
    ]
    for key, title in titles.items():
        x, y = places[key]
        if key.startswith("q:"):
            seen = None if sight is None else sight.queues.get(title)
            is_dead = any(title == step.dead for step in definition.steps)
            parts += _queue(x, y, title, seen, is_dead=is_dead)
        else:
            step = None if sight is None else sight.steps.get(title)
            parts += _step(x, y, steps[title], step, (phases or {}).get(title))
    return "".join([*parts, "</svg>\n"])


def _head(name: str, width: int, height: int) -> str:
    """Return the head of the picture: its size, the style of its parts, and the tip of an arrow."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="quire" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img" '
        f'aria-label="{escape(f"graph {name}", quote=True)}"><style>{_STYLE}</style>'
        f"<defs>{_tip('quire-tip', '#8a96a5')}{_tip('quire-dead-tip', '#b3261e')}</defs>"
    )


def _tip(name: str, colour: str) -> str:
    return (
        f'<marker id="{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        f'markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="{colour}"/></marker>'
    )


def write_drawing(path: str | PathLike[str], picture: str) -> None:
    """Write a picture to a file. Raises InvalidArgument where there can be none, and DiskFull."""
    if not isinstance(path, (str, PathLike)) or not fspath(path):
        raise InvalidArgument(f"path {path!r:.100}: give the path of a file for the picture")
    data = picture.encode()
    try:
        with closing(OsEnv().open_file(fspath(path), create=True)) as file:
            file.write(0, data)
            file.truncate(len(data))
    except DiskFull:
        raise
    except (OSError, ValueError) as error:  # the latter of a path with a zero byte
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InvalidArgument(
            f"path {fspath(path)!r:.300}: the picture cannot be written there ({reason}): give a "
            "file in a folder that is there and that you may write to"
        ) from error


def _places(layout: GraphLayout) -> dict[str, tuple[float, float]]:
    """The left middle of each node, and of each bend."""
    rows = max(map(len, layout.layers), default=1)
    found = {}
    for across, layer in enumerate(layout.layers):
        top = (rows - len(layer)) / 2
        for down, node in enumerate(layer):
            y = DRAWN_MARGIN + DRAWN_HEIGHT / 2 + (top + down) * DRAWN_DOWN
            found[node] = float(DRAWN_MARGIN + across * DRAWN_ACROSS), y
    return found


def _edge(places: list[tuple[float, float]], *, is_dead: bool) -> str:
    """Draw from the right side of the first to the left side of the last, through the bends.

    One that goes back begins and ends below the middle, apart from those that go forward.
    """
    is_back = places[-1][0] < places[0][0]
    (x, y), gap, lower = places[0], 2, DRAWN_HEIGHT / 4
    start = (x, y + lower) if is_back else (x + DRAWN_WIDTH, y)
    last_x, last_y = places[-1]
    end = (last_x + DRAWN_WIDTH + gap, last_y + lower) if is_back else (last_x - gap, last_y)
    path, at = f"M{start[0]:g} {start[1]:g}", start
    for bend_x, bend_y in places[1:-1]:  # straight through the layer between
        sides = (bend_x + DRAWN_WIDTH, bend_x) if is_back else (bend_x, bend_x + DRAWN_WIDTH)
        path += f"{_curve(at, (sides[0], bend_y))}L{sides[1]:g} {bend_y:g}"
        at = sides[1], bend_y
    kind, tip = ("edge dead", "quire-dead-tip") if is_dead else ("edge", "quire-tip")
    return f'<path class="{kind}" d="{path}{_curve(at, end)}" marker-end="url(#{tip})"/>'


def _curve(start: tuple[float, float], end: tuple[float, float]) -> str:
    bend = (start[0] + end[0]) / 2
    return f"C{bend:g} {start[1]:g} {bend:g} {end[1]:g} {end[0]:g} {end[1]:g}"


def _queue(
    x: float, y: float, name: str, seen: QueueSight | None, *, is_dead: bool
) -> Iterator[str]:
    colour = "#b3261e" if is_dead else "#2f6db3"
    top, middle = y - DRAWN_HEIGHT / 2, x + DRAWN_WIDTH / 2
    yield (
        f'<g><title>{escape(_queue_title(name, seen))}</title><rect x="{x:g}" y="{top:g}" '
        f'width="{DRAWN_WIDTH}" height="{DRAWN_HEIGHT}" rx="{DRAWN_HEIGHT / 2:g}" fill="#ffffff" '
        f'stroke="{colour}" stroke-width="1.6"/>'
    )
    if seen is not None:
        left, whole = x + DRAWN_HEIGHT / 2, DRAWN_WIDTH - DRAWN_HEIGHT
        yield _bar(left, y + 19, whole, "#e2e7ed") + _bar(left, y + 19, whole * seen.fill, colour)
    text = "" if seen is None else _count(seen.messages, "message")
    yield _texts(middle, y, name, text, "bad" if is_dead and seen and seen.messages else "")


def _bar(x: float, y: float, width: float, colour: str) -> str:
    return f'<rect x="{x:g}" y="{y:g}" width="{width:.4g}" height="3" rx="1.5" fill="{colour}"/>'


def _step(
    x: float, y: float, step: StepDefinition, seen: StepSight | None, phase: str | None
) -> Iterator[str]:
    top, middle = y - DRAWN_HEIGHT / 2, x + DRAWN_WIDTH / 2
    fill = {"streaming": "#eee8f6", "terminal": "#e5f1ea"}.get(step.kind, "#eef1f5")
    yield (
        f'<g><title>{escape(_step_title(step, seen))}</title><rect x="{x:g}" y="{top:g}" '
        f'width="{DRAWN_WIDTH}" height="{DRAWN_HEIGHT}" rx="6" fill="{fill}" stroke="#7c8896" '
        f'stroke-width="1.3"/>'
    )
    text, kind = step.kind if step.kind != "step" else "", ""
    if seen is not None:
        is_late = seen.lag_messages > 0
        text = f"{count(seen.lag_messages)} behind" if is_late else "up to date"
        kind = "late" if is_late else ""
    if phase in ("failed", "retrying", "waiting", "stopped"):
        text, kind = f"{phase}, {text}" if text else phase, "bad"
    elif seen is not None and seen.is_paused:
        text, kind = f"paused, {text}", "late"
    yield _texts(middle, y, step.name, text, kind)


def _texts(middle: float, y: float, name: str, text: str, kind: str) -> str:
    """The two lines of a node, of which the group ends."""
    found = _line(middle, y - 2 if text else y + 5, name, "name", DRAWN_NAME_SIZE)
    if text:
        found += _line(middle, y + 13, text, f"small {kind}".rstrip(), DRAWN_WORDS_SIZE)
    return f"{found}</g>"


def _line(middle: float, y: float, text: str, kind: str, size: float) -> str:
    shown, size = fitted(text, size, DRAWN_WIDTH - 2 * DRAWN_PADDING)
    return (
        f'<text x="{middle:g}" y="{y:g}" class="{kind}" font-size="{size:.3g}">'
        f"{escape(shown)}</text>"
    )


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _queue_title(name: str, seen: QueueSight | None) -> str:
    if seen is None:
        return name
    rows = f", rows of {seen.schema}" if seen.schema else ""
    return f"{name}: {_count(seen.messages, 'message')}, {seen.fill:.1%} of its capacity{rows}"


def _step_title(step: StepDefinition, seen: StepSight | None) -> str:
    parts = [", ".join(step.inputs)] * bool(step.inputs)
    parts += ["->", ", ".join(step.writes)] * bool(step.writes)
    title = f"{step.kind} {step.name}: {' '.join(parts)}"
    if seen is None:
        return title
    title += "; paused" * seen.is_paused
    lags = (
        f"{_count(each.lag_messages, 'message')} of {each.queue} to read" for each in seen.inputs
    )
    return "; ".join([title, *lags])


_NARROW: Final = frozenset("iljI.,:;|!' ")
_SLIM: Final = frozenset("frt-_()/[]{}")
_WIDE: Final = frozenset("mwMW@%…")


def ems(text: str) -> float:
    """Return about how wide it is, in bold letters, in units of their size: DejaVu's are wide."""
    return sum(map(_ems_of, text))


def _ems_of(letter: str) -> float:
    if letter in _NARROW:
        return 0.4
    if letter in _SLIM:
        return 0.5
    if letter in _WIDE:
        return 1.11
    return 0.86 if letter.isupper() or letter > "\xff" else 0.72


def fitted(text: str, size: float, room: float) -> tuple[str, float]:
    """The text, and the size of its letters: smaller if need be, cut where they were too small."""
    smallest = size * DRAWN_SMALLEST
    wide = ems(text)
    if wide * smallest <= room:
        return text, min(size, room / wide) if wide else size
    kept, left = 0, room / smallest - ems("…")
    while left >= _ems_of(text[kept]):
        left -= _ems_of(text[kept])
        kept += 1
    return f"{text[:kept]}…", smallest


def count(number: int) -> str:
    """A number in few letters: 9,999, then 10.0k, 12.3M and so on."""
    if number < 10_000:
        return f"{number:,}"
    amount, units = float(number), "kMGT"
    unit = -1
    while unit < 0 or (amount >= 999.5 and unit < len(units) - 1):
        amount /= 1000
        unit += 1
    return f"{amount:.1f}{units[unit]}" if amount < 99.95 else f"{amount:.0f}{units[unit]}"
