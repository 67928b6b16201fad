"""Charts over a setting that changes between runs: the batch, and the number of devices."""

from collections import defaultdict

import style
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from results import GIB, Results, Row


def _series(data: Results, setting) -> dict[str, dict[int, Row]]:
    """By rung or peer: its rows by the setting, of those that have two or more; rungs first. Only of the first model
    and sequence length."""
    series: dict[str, dict[int, Row]] = defaultdict(dict)
    for workload, row in data.measured():
        if row.tokens_per_second and (workload.model, workload.T) == (data.workloads[0].model, data.workloads[0].T):
            series[row.rung][setting(workload, row)] = row
    several = {name: dict(sorted(rows.items())) for name, rows in series.items() if len(rows) > 1}
    return dict(sorted(several.items(), key=lambda item: bool(next(iter(item[1].values())).peer)))


def _over(ax, settings: list[int], label: str) -> None:
    """A logarithmic axis with a mark at each setting."""
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_locator(FixedLocator(settings))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
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
    series = _series(data, lambda workload, row: workload.B)
    if not series:
        return "no rung was measured at two batches: `stepladder run --batch 2,4,8,16,32,64,128` does"
    settings = sorted({setting for rows in series.values() for setting in rows})
    fig, *_ = _figure(data, series, "Throughput over the batch", settings, "batch",
                      lambda row: row.memory.live / GIB if row.memory else None, "live GiB")
    return fig


def draw_scaling(data: Results):
    """Throughput over the number of devices, the ideal dotted, and the share of it that is reached."""
    series = _series(data, lambda workload, row: row.world_size)
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
