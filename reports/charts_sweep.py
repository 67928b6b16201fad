"""Charts over a setting that changes between runs: the batch, and the number of devices."""

from collections import defaultdict

import style
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter
from results import GIB, Results, Row


def _series(data: Results, setting) -> dict[str, dict[int, Row]]:
    """By rung or peer: its rows by the setting, of those that have two or more; rungs first. Only of the first model
    and sequence length. Of results that measured the same, the one with the most settings counts. A rung on two
    settings is left out beside one on more, which is a sweep, unless a peer was measured there too."""
    files: dict[tuple[str, str], dict[int, Row]] = defaultdict(dict)
    for workload, row in data.measured():
        if row.tokens_per_second and (workload.model, workload.T) == (data.workloads[0].model, data.workloads[0].T):
            files[row.rung, workload.file][setting(workload, row)] = row
    series: dict[str, dict[int, Row]] = defaultdict(dict)
    for (name, _), rows in sorted(files.items(), key=lambda item: len(item[1])):
        series[name].update(rows)
    several = {name: dict(sorted(rows.items())) for name, rows in sorted(series.items()) if len(rows) > 1}
    most = max(map(len, several.values()), default=0)
    peers = {name: rows for name, rows in several.items() if next(iter(rows.values())).peer}
    swept = {name: rows for name, rows in several.items() if name not in peers and (
        len(rows) >= min(3, most) or any(peer.endswith(f"/{name}") for peer in peers))}
    return swept | peers


def _over(ax, settings: list[int], label: str) -> None:
    """A logarithmic axis with a number at each power of two, and a tick at what lies between."""
    powers = [value for value in settings if value & (value - 1) == 0]
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_locator(FixedLocator(powers if len(powers) > 1 else settings))
    ax.xaxis.set_minor_locator(FixedLocator([value for value in settings if value not in powers]))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.set_xlabel(label)


def _plot(ax, series: dict[str, dict[int, Row]], value) -> None:
    looks = style.lines(["", *series])
    for name, rows in series.items():
        points = [(setting, number) for setting, row in rows.items() if (number := value(row)) is not None]
        look = looks[name]
        ax.plot(*zip(*points), color=look.color, linestyle=look.linestyle, marker=look.marker, markersize=5,
                linewidth=1.6, label=name)
        for setting, number in points:
            (mark,) = ax.plot(setting, number, marker=look.marker, color=look.color, markersize=5, linestyle="none")
            style.tip(mark, f"{name} at {setting}: {number:,.4g}")


def _figure(data: Results, series, title: str, settings: list[int], axis: str, value, unit: str):
    """Throughput above, `value` below, over the settings. Returns the figure and the two axes."""
    first = data.workloads[0]
    fig, (rate, below) = style.figure(title, f"{data.device}  ·  {first.model}, T = {first.T}", [2.4, 1.5],
                                      [0.2, 0.12], 0.85, 0.25 + style.legend_width(list(series)))
    _plot(rate, series, lambda row: row.tokens_per_second / 1e3)
    _plot(below, series, value)
    for ax, label in ((rate, "thousand tokens/s"), (below, unit)):
        _over(ax, settings, axis)
        ax.set_ylabel(label)
        ax.set_ylim(0)
        ax.yaxis.set_label_coords(-0.55 / (ax.get_position().width * style.WIDTH), 0.5)
    rate.tick_params(axis="x", labelbottom=False)
    rate.set_xlabel("")
    place = rate.get_position()
    fig.legend(*rate.get_legend_handles_labels(), loc="upper left", fontsize=9, borderaxespad=0,
               bbox_to_anchor=(place.x1 + 0.12 / style.WIDTH, place.y1))
    return fig, rate, below


def draw_batch(data: Results):
    """Throughput and peak memory over the batch."""
    series = _series(data, lambda workload, row: workload.B) if data.workloads else {}
    if not series:
        return "no rung was measured at two batches: `stepladder run --batch 2,4,8,16,32,64,128` does"
    settings = sorted({setting for rows in series.values() for setting in rows})
    fig, *_ = _figure(data, series, "Throughput over the batch", settings, "batch",
                      lambda row: row.memory.live / GIB if row.memory else None, "live GiB")
    return fig


def draw_scaling(data: Results):
    """Throughput over the number of devices, the ideal dotted, and the share of it that is reached."""
    series = _series(data, lambda workload, row: row.world_size) if data.workloads else {}
    if not series:
        return "no rung was measured on two numbers of devices"
    settings = sorted({setting for rows in series.values() for setting in rows})
    alone = {name: next(iter(rows.items())) for name, rows in series.items()}  # of each, on the fewest devices

    def efficiency(row: Row) -> float:
        devices, first = alone[row.rung]
        return 100 * (row.tokens_per_second / row.world_size) / (first.tokens_per_second / devices)

    fig, rate, below = _figure(data, series, "Throughput over devices", settings, "devices", efficiency,
                               "% of ideal")
    for devices, first in alone.values():
        rate.plot(settings, [first.tokens_per_second / 1e3 * setting / devices for setting in settings],
                  color=style.MUTED, linestyle=":", linewidth=1)
    below.axhline(100, color=style.MUTED, linestyle=":", linewidth=1)
    below.set_ylim(0, 112)
    return fig


CHARTS = {"batch": draw_batch, "scaling": draw_scaling}
