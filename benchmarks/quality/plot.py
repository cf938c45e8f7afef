"""Plot the curves: a panel for each metric, over seconds of training."""

from __future__ import annotations

import io
import math
from collections.abc import Collection, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Picture
from matplotlib.ticker import LogFormatter, MaxNLocator

from benchmarks.quality.rows import FIGURES, Curve, Figure, Row, curves
from data.io.files import write_result

COLUMNS = 3  # of panels
PANEL_INCHES = (4.4, 3.3)
LEGEND_INCHES = 0.5  # below the panels
DOTS_PER_INCH = 120
DASHES = ("-", "--", ":", "-.")  # by length
ELSEWHERE = (0, (1, 1))  # dots: a curve that was measured elsewhere


def draw(path: Path, rows: Sequence[Row], elsewhere: Collection[str]) -> None:
    """Write a PNG; the runs named in `elsewhere` are dotted. Raises UserError if the file cannot be written."""
    shown = [figure for figure in FIGURES if any(row.get(figure.column) is not None for row in rows)]
    wide = max(1, min(COLUMNS, len(shown)))
    high = max(1, math.ceil(len(shown) / wide))
    size = (wide * PANEL_INCHES[0], high * PANEL_INCHES[1] + LEGEND_INCHES)
    picture = Picture(figsize=size, dpi=DOTS_PER_INCH, layout="constrained")
    handles: dict[str, object] = {}
    for index, figure in enumerate(shown):
        panel = picture.add_subplot(high, wide, index + 1)
        handles |= _panel(panel, figure, curves(rows), elsewhere)
    if handles:
        picture.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=min(len(handles), 2 * wide))
    content = io.BytesIO()
    FigureCanvasAgg(picture).print_png(content)
    write_result(path, content.getvalue())


def _panel(panel: Axes, figure: Figure, all_curves: Sequence[Curve], elsewhere: Collection[str]) -> dict[str, object]:
    """Plot one metric; returns a line for each label. Colours distinguish runs, dashes lengths; seeds look alike."""
    names = list(dict.fromkeys(curve.run for curve in all_curves))
    lengths = list(dict.fromkeys(curve.length for curve in all_curves if curve.run not in elsewhere))
    handles: dict[str, object] = {}
    for curve in all_curves:
        points = [(row["seconds"], row[figure.column]) for row in curve.rows if row[figure.column] is not None]
        is_ours = curve.run not in elsewhere
        label = f"{curve.run} x{curve.length:g}" if is_ours and len(lengths) > 1 else curve.run
        (line,) = panel.plot(
            *zip(*points, strict=True) if points else ((), ()),
            color=f"C{names.index(curve.run) % 10}",
            linestyle=DASHES[lengths.index(curve.length) % len(DASHES)] if is_ours else ELSEWHERE,
            marker="o" if is_ours else "s",
            markersize=3.5,
            linewidth=1.3,
        )
        handles.setdefault(label, line)
    panel.set_title(figure.title, fontsize=10)
    panel.set_xlabel("seconds of training", fontsize=8)
    _axes(panel, figure)
    return handles


def _axes(panel: Axes, figure: Figure) -> None:
    """Logarithmic axes for time and for values that decrease towards 0; plain numbers at the ticks."""
    panel.set_xscale("log")
    panel.xaxis.set_major_formatter(_Plain(minor_thresholds=(2, 0.5)))
    panel.xaxis.set_minor_formatter(_Plain(minor_thresholds=(2, 0.5)))
    if figure.is_log:
        panel.set_yscale("log")
        panel.yaxis.set_major_formatter(_Plain(minor_thresholds=(2, 0.5)))
        panel.yaxis.set_minor_formatter(_Plain(minor_thresholds=(2, 0.5)))
    else:
        panel.yaxis.set_major_locator(MaxNLocator(6))
    panel.tick_params(which="both", labelsize=7)
    panel.grid(visible=True, which="both", linewidth=0.3, alpha=0.5)


class _Plain(LogFormatter):
    """0.002 and not 2 x 10^-3."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        """The number beside a tick; nothing where the ticks stand too close."""
        return f"{x:g}" if super().__call__(x, pos) else ""
