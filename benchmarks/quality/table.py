"""The metrics at equal time, and their spread over seeds, as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.quality.rows import FIGURES, Curve, Figure, Row, curves, means

BESIDE = Figure("cpu_seconds", "CPU s", digits=1)


def equal_time(rows: Sequence[Row], base: str) -> str:
    """Each measurement of the runs named `base`, and those of the other runs of the same length at that time.

    The others are interpolated linearly in time; for one that ended earlier, its last values are used. A curve without
    a length is compared with all.
    """
    all_curves = means(rows)
    shown = [figure for figure in FIGURES if any(row.get(figure.column) is not None for row in rows)]
    titles = ["seconds", "run", BESIDE.title, *(figure.title for figure in shown)]
    lines = [_line(titles), _line(["---"] * len(titles))]
    for own in (curve for curve in all_curves if curve.run == base):
        others = [curve for curve in all_curves if curve.run != base and curve.length in (own.length, None)]
        for moment in own.rows:
            for curve in (own, *others):
                found = at(curve, moment["seconds"])
                if found is not None:
                    texts = [_text(figure, found[figure.column]) for figure in (BESIDE, *shown)]
                    lines.append(_line([f"{moment['seconds']:.1f}", _name(curve, moment["seconds"]), *texts]))
    return "\n".join(lines)


def spread(rows: Sequence[Row]) -> str:
    """The final Chamfer distances of runs with several seeds; "" if there are none."""
    ends: dict[tuple, list[Row]] = {}
    for curve in curves(rows):
        ends.setdefault((curve.run, curve.length), []).append(curve.rows[-1])
    several = {key: own for key, own in ends.items() if len(own) > 1}
    if not several:
        return ""
    lines = [
        "| run | length | seeds | seconds | Chamfer, mean | lowest | highest | spread | without a figure |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for (run, length), own in several.items():
        seconds = sum(row["seconds"] for row in own) / len(own)
        values = [row["chamfer"] for row in own if row["chamfer"] is not None]
        texts = ["-"] * 4
        if values:
            mean, low, high = sum(values) / len(values), min(values), max(values)
            texts = [f"{mean:.5f}", f"{low:.5f}", f"{high:.5f}", f"{(high - low) / mean:.1%}"]
        missing = len(own) - len(values)
        lines.append(_line([run, _length(length), str(len(own)), f"{seconds:.1f}", *texts, str(missing)]))
    return "\n".join(lines)


def at(curve: Curve, seconds: float) -> Row | None:
    """The metrics of a curve at a time; None before its first measurement."""
    if seconds < curve.rows[0]["seconds"]:
        return None
    for before, after in zip(curve.rows, curve.rows[1:], strict=False):
        if seconds < after["seconds"]:
            share = (seconds - before["seconds"]) / (after["seconds"] - before["seconds"])
            return {column: _between(before.get(column), after.get(column), share) for column in _columns()}
    return {column: curve.rows[-1].get(column) for column in _columns()}


def _columns() -> list[str]:
    return [figure.column for figure in (BESIDE, *FIGURES)]


def _between(before: float | None, after: float | None, share: float) -> float | None:
    """None if one of the two is lacking, unless the time is that of the other."""
    if share == 0.0 or before is None or after is None:
        return before if share == 0.0 else None
    return before + share * (after - before)


def _name(curve: Curve, seconds: float) -> str:
    """`fast x0.5, mean of 3 seeds, ended at 20.1`."""
    parts = [f"{curve.run} {_length(curve.length)}".rstrip()]
    if curve.seeds > 1:
        parts.append(f"mean of {curve.seeds} seeds")
    if seconds > curve.rows[-1]["seconds"]:
        parts.append(f"ended at {curve.rows[-1]['seconds']:.1f}")
    return ", ".join(parts)


def _length(length: float | None) -> str:
    """`x0.5`; nothing for the conf's own length, and where it is not known."""
    return "" if length in (None, 1.0) else f"x{length:g}"


def _text(figure: Figure, value: float | None) -> str:
    return "-" if value is None else f"{value:.{figure.digits}f}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
