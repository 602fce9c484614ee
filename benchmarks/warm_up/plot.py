"""Miss ratios over the minutes, as an SVG document for each router."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape

import numpy as np
import numpy.typing as npt

from benchmarks.warm_up.cells import CHANGES
from benchmarks.warm_up.judge import Measured
from benchmarks.warm_up.runs import BEFORE

__all__ = ["plot"]

_MINUTES, _MINUTES_BEFORE = 20, 5
_WIDTH, _HEIGHT = 250, 150
_LEFT, _TOP, _RIGHT, _BOTTOM = 46, 60, 14, 44
_GAP_X, _GAP_Y = 44, 62
_LINES = (
    ("none", "without warm-up", "#c2410c", ""),
    ("warm-up", "with warm-up", "#1d4ed8", ""),
    ("reference", "nothing lost", "#6b7280", "4 3"),
)
_REFERENCE_MINUTES = 5
_TICKS_Y = 4
_STYLE = (
    "text{font:11px sans-serif;fill:#1f2937}.t{font-weight:bold;font-size:13px}.m{text-anchor:middle}.e{text-anchor:end}"
    ".g{stroke:#e5e7eb}.c{stroke:#9ca3af;stroke-dasharray:2 2}path{fill:none;stroke-width:1.8;stroke-linejoin:round}"
)


def plot(title: str, measured: Sequence[Measured]) -> str:
    """A panel for each change and fleet memory.

    Args:
        title: of the whole.
        measured: cells of one router, trace and load concurrency.
    """
    changes = [name for name in CHANGES if any(one.cell.change == name for one in measured)]
    shares = sorted({one.cell.fleet.memory_share for one in measured})
    width = _LEFT + len(changes) * _WIDTH + (len(changes) - 1) * _GAP_X + _RIGHT
    height = _TOP + len(shares) * _HEIGHT + (len(shares) - 1) * _GAP_Y + _BOTTOM
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">',
        f"<title>{escape(title)}</title><style>{_STYLE}</style>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text class="t" x="{_LEFT}" y="20">{escape(title)}</text>',
        *_legend(width),
    ]
    for row, share in enumerate(shares):
        for column, change in enumerate(changes):
            for one in measured:
                if one.cell.change == change and one.cell.fleet.memory_share == share:
                    parts += _panel(one, _LEFT + column * (_WIDTH + _GAP_X), _TOP + row * (_HEIGHT + _GAP_Y))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _legend(width: int) -> Iterable[str]:
    x = width - _RIGHT - 130 * len(_LINES)
    for _variant, name, colour, dash in _LINES:
        yield f'<path d="M{x} 16h22" stroke="{colour}" stroke-dasharray="{dash}"/><text x="{x + 27}" y="20">{name}</text>'
        x += 130


def _panel(one: Measured, left: float, top: float) -> Iterable[str]:
    before = one.ratio(BEFORE)[-_MINUTES_BEFORE:]
    lines = {variant: one.ratio(variant)[: _REFERENCE_MINUTES if variant == "reference" else _MINUTES] for variant, *_ in _LINES}
    greatest = _round_up(max(float(np.max(values)) for values in (before, *lines.values())))
    bottom = top + _HEIGHT

    def x(minute: float) -> float:
        return left + _WIDTH * (minute + _MINUTES_BEFORE) / (_MINUTES + _MINUTES_BEFORE)

    yield f'<text x="{left}" y="{top - 8}">{escape(_name(one))}</text>'
    for tick in range(_TICKS_Y + 1):
        y = bottom - _HEIGHT * tick / _TICKS_Y
        yield f'<line class="g" x1="{left}" x2="{left + _WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text class="e" x="{left - 5}" y="{y + 4:.1f}">{greatest * tick / _TICKS_Y:g}</text>'
    for minute in range(-_MINUTES_BEFORE, _MINUTES + 1, 5):
        yield f'<text class="m" x="{x(minute):.1f}" y="{bottom + 15}">{minute}</text>'
    yield f'<line class="c" x1="{x(0):.1f}" x2="{x(0):.1f}" y1="{top}" y2="{bottom}"/>'
    yield f'<text class="m" x="{left + _WIDTH / 2:.1f}" y="{bottom + 29}">minutes from the change (misses, %)</text>'
    for variant, _label, colour, dash in reversed(_LINES):
        values = np.concatenate([before, lines[variant]])
        yield f'<path d="{_steps(values, x, bottom, greatest)}" stroke="{colour}" stroke-dasharray="{dash}"/>'


def _name(one: Measured) -> str:
    change = {"update": "blue/green update of 5", "loss": "loss of one of 4"}.get(one.cell.change, f"{one.cell.change} instances")
    return f"{change}, memory {one.cell.fleet.memory_share:g}"


def _steps(values: npt.NDArray[np.float64], x: Callable[[float], float], bottom: float, greatest: float) -> str:
    """A horizontal piece for each minute."""
    path = []
    for number, value in enumerate(values.tolist()):
        y = bottom - _HEIGHT * value / greatest
        path.append(f"{'M' if number == 0 else 'L'}{x(number - _MINUTES_BEFORE):.1f} {y:.1f}H{x(number - _MINUTES_BEFORE + 1):.1f}")
    return "".join(path)


def _round_up(value: float) -> float:
    """To a number that four ticks divide well."""
    scale = 10.0 ** np.floor(np.log10(max(value, 1e-3)))
    return float(next(scale * step for step in (1, 2, 4, 6, 8, 10) if scale * step >= value))
