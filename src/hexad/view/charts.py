"""Curves as inline SVG: small, without scripts, themed by the page's style sheet."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup

WIDTH, HEIGHT = 420, 200
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 12, 12, 30
_POINTS = 240
"""Points of a line at most; longer ones show every k-th."""
Number = float | None


@dataclass(frozen=True, slots=True)
class Line:
    """``y`` over ``x``, with the band ``low`` to ``high`` where it has one; a class colours it."""

    label: str
    kind: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    dots: bool = False
    """Single points, with their intervals as whiskers, rather than a line."""

    def thinned(self) -> Line:
        """The line with at most ``_POINTS`` points, the last one included."""
        step = math.ceil(len(self.x) / _POINTS) or 1
        last = len(self.x) - 1

        def cut(values: Sequence[float]) -> list[float]:
            return [v for i, v in enumerate(values) if (last - i) % step == 0]

        x, y, low, high = (cut(part) for part in (self.x, self.y, self.low, self.high))
        return replace(self, x=x, y=y, low=low, high=high)


@dataclass(frozen=True, slots=True)
class Chart:
    """A titled picture; ``note`` says what line and band are."""

    title: str
    lines: tuple[Line, ...]
    note: str = ""
    unit: str = ""
    bounds: tuple[Number, Number] = (None, None)
    """Fixed ends of the vertical axis, where there are any."""

    @property
    def svg(self) -> Markup:
        """The chart, with a text for those who cannot see it."""
        lines = [line.thinned() for line in self.lines if len(line.x)]
        x = Scale.over([v for line in lines for v in line.x], (_LEFT, WIDTH - _RIGHT))
        values = [v for line in lines for part in (line.y, line.low, line.high) for v in part]
        y = Scale.over(values, (HEIGHT - _BOTTOM, _TOP), self.bounds)
        inner = Markup("").join([*_grid(x, y), *(_line(line, x, y) for line in lines)])
        told = "; ".join(f"{line.label} ends at {number(line.y[-1])}" for line in lines)
        return Markup(
            '<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}: {}">{}</svg>'
        ).format(WIDTH, HEIGHT, self.title, told or "no values", inner)


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps ``low`` to ``high`` onto pixels ``start`` to ``end``."""

    low: float
    high: float
    start: float
    end: float

    @classmethod
    def over(
        cls,
        values: Sequence[float],
        pixels: tuple[float, float],
        bounds: tuple[Number, Number] = (None, None),
    ) -> Scale:
        """The scale that shows all ``values``, or the fixed ``bounds``."""
        low = bounds[0] if bounds[0] is not None else min(values, default=0.0)
        high = bounds[1] if bounds[1] is not None else max(values, default=1.0)
        if high <= low:  # one value only: a little room around it
            room = abs(low) * 0.1 or 1.0
            low, high = low - room, high + room
        return cls(low, high, *pixels)

    def __call__(self, value: float) -> float:
        """The pixel of ``value``, to a tenth."""
        share = (value - self.low) / (self.high - self.low)
        return round(self.start + share * (self.end - self.start), 1)

    def ticks(self, count: int) -> Iterator[float]:
        """Round numbers inside the scale, about ``count`` of them."""
        raw = (self.high - self.low) / count
        base = 10.0 ** math.floor(math.log10(raw))
        step = base * next(m for m in (1, 2, 5, 10) if m * base >= raw * 0.999)
        first = math.ceil(self.low / step - 1e-9)
        for index in range(first, math.floor(self.high / step + 1e-9) + 1):
            yield index * step


def number(value: float) -> str:
    """``12.3M``, ``45k``, ``8,898``, ``0.034``, ``3e-06``: three digits, or a whole number."""
    size = abs(value)
    for limit, unit, letter in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if size >= limit:
            return f"{value / unit:.3g}{letter}"
    return f"{value:,.0f}" if size >= 1e3 else f"{value:.3g}"


def _grid(x: Scale, y: Scale) -> Iterator[Markup]:
    for value in y.ticks(4):
        yield Markup('<line class="grid" x1="{}" x2="{}" y1="{}" y2="{}"/>').format(
            _LEFT, WIDTH - _RIGHT, y(value), y(value)
        )
        yield Markup('<text class="tick" x="{}" y="{}" text-anchor="end">{}</text>').format(
            _LEFT - 6, y(value) + 4, number(value)
        )
    for value in x.ticks(4):
        yield Markup('<text class="tick" x="{}" y="{}" text-anchor="middle">{}</text>').format(
            x(value), HEIGHT - 10, number(value)
        )


def _line(line: Line, x: Scale, y: Scale) -> Markup:
    across = [x(v) for v in line.x]
    place = [(a, y(v)) for a, v in zip(across, line.y, strict=True)]
    if line.dots:
        return _dots(line, place, y)
    shown = Markup("")
    if line.low:
        above = [(a, y(v)) for a, v in zip(across, line.high, strict=True)]
        below = [(a, y(v)) for a, v in zip(across, line.low, strict=True)]
        shown += Markup('<polygon class="band {}" points="{}"/>').format(
            line.kind, _points([*above, *reversed(below)])
        )
    shown += Markup('<polyline class="line {}" points="{}"/>').format(line.kind, _points(place))
    a, b = place[-1]
    return shown + Markup('<circle class="dot {}" cx="{}" cy="{}" r="3"/>').format(line.kind, a, b)


def _dots(line: Line, places: Sequence[tuple[float, float]], y: Scale) -> Markup:
    size = 4 if line.low else 2
    shown = [
        Markup('<circle class="dot {}" cx="{}" cy="{}" r="{}"/>').format(line.kind, a, b, size)
        for a, b in places
    ]
    for (a, _), low, high in zip(places, line.low, line.high, strict=False):
        shown.append(
            Markup('<line class="whisker {}" x1="{}" x2="{}" y1="{}" y2="{}"/>').format(
                line.kind, a, a, y(low), y(high)
            )
        )
    return Markup("").join(shown)


def _points(places: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{a},{b}" for a, b in places)
