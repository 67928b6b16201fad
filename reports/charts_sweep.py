"""Charts over a setting that changes between runs: the batch, and the number of devices."""

import math
from collections import defaultdict

import style
from layout import legend_right
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter
from results import Results, Row


def _series(data: Results) -> dict[str, dict[int, Row]]:
    """By rung or peer: its rows by the batch, of those that have two or more; rungs first. Only on one device, and of
    the first model and sequence length. Of results that measured the same, the one with the most batches counts. A
    rung at two batches is left out beside one at more, which is a sweep, unless a peer was measured there too."""
    files: dict[tuple[str, str], dict[int, Row]] = defaultdict(dict)
    for workload, row in data.measured():
        first = data.workloads[0]
        if row.tokens_per_second and (workload.model, workload.T, workload.devices) == (first.model, first.T, 1):
            files[row.rung, workload.file][workload.B] = row
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


def _figure(data: Results, model: str, T: int, legend: list[str], title: str):
    """The figure, for throughput above and something else below, and the two axes."""
    fig, (rate, below) = style.figure(title, f"{data.device}  ·  {model}, T = {T}", [2.4, 1.5],
                                      [0.2, 0.12], 0.85, 0.25 + style.legend_width(legend))
    return fig, rate, below


def _finish(fig, rate, below, settings: list[int], axis: str, unit: str) -> None:
    """Axes and legend, once everything is drawn."""
    for ax, label in ((rate, "thousand tokens/s"), (below, unit)):
        _over(ax, settings, axis)
        ax.set_ylabel(label)
        if ax.get_yscale() == "linear":
            ax.set_ylim(0)
        ax.yaxis.set_label_coords(-0.55 / (ax.get_position().width * style.WIDTH), 0.5)
    below.set_xlim(rate.get_xlim())
    rate.tick_params(axis="x", labelbottom=False)
    rate.set_xlabel("")
    legend_right(fig, rate, rate.get_legend_handles_labels()[0], lines=True)


def draw_batch(data: Results):
    """Throughput and peak memory over the batch."""
    series = _series(data)
    if not series:
        return "no rung was measured at two batches: `stepladder run --batch 2,4,8,16,32,64,128` does"
    settings = sorted({setting for rows in series.values() for setting in rows})
    first = data.workloads[0]
    fig, rate, below = _figure(data, first.model, first.T, list(series), "Throughput over the batch")
    _plot(rate, series, lambda row: row.tokens_per_second / 1e3)
    _plot(below, series, lambda row: row.live_gib)
    _finish(fig, rate, below, settings, "batch", "live GiB")
    return fig


def draw_scaling(data: Results):
    """Throughput over the number of devices, with its interval, the ideal dotted, and the share of it that is reached.
    Of several results that scaled the same, the one with the most numbers of devices. Dashed is what a model predicts
    from one device and nominal links, to 64 devices; nobody measured that."""
    if not data.scaling:
        return "no rung was measured on one device and on several: `stepladder run --devices 1,2,4` does"
    first = data.workloads[0]
    setting = data.scaling[0].setting or (first.model, first.T)
    scaling = [row for row in data.scaling if row.setting in (None, setting)]
    batches = {row.batch for row in scaling}

    def name(row) -> str:
        return row.rung + (f", B = {row.batch}" if len(batches) > 1 else "")

    files: dict[str, dict[str, list]] = {}  # by name and file
    for row in scaling:
        files.setdefault(name(row), {}).setdefault(row.file, []).append(row)
    most = {label: max(rows.values(), key=len) for label, rows in files.items()}
    names, scaling = list(most), [row for rows in most.values() for row in rows]
    predicted = [row for row in data.predicted if name(row) in names and row.file == most[name(row)][0].file]
    settings = sorted({1} | {row.devices for row in scaling + predicted})
    fig, rate, below = _figure(data, *setting, [*names, "predicted"] if predicted else names,
                               "Throughput over devices")
    looks = style.lines(["", *names])
    for label in names:
        look = looks[label]
        rows = sorted(most[label], key=lambda row: row.devices)
        for ax, scale, value, interval in ((rate, 1e-3, "tokens_per_second", "interval"),
                                           (below, 100, "efficiency", "efficiency_interval")):
            values = [getattr(row, value) for row in rows]
            spans = [getattr(row, interval) or (number, number) for row, number in zip(rows, values)]
            errors = [[scale * (number - low) for number, (low, _) in zip(values, spans)],
                      [scale * (high - number) for number, (_, high) in zip(values, spans)]]
            ax.errorbar([row.devices for row in rows], [scale * number for number in values], yerr=errors, capsize=3,
                        color=look.color, linestyle=look.linestyle, marker=look.marker, markersize=5, linewidth=1.6,
                        label=label)
            for row, number in zip(rows, values):
                (mark,) = ax.plot(row.devices, scale * number, marker=look.marker, color=look.color, markersize=5,
                                  linestyle="none")
                machines = f" in {row.machines} machines" if row.machines > 1 else ""
                style.tip(mark, f"{label} on {row.devices}{machines}: {scale * number:,.4g}")
            model = sorted((row for row in predicted if name(row) == label), key=lambda row: row.devices)
            if model:
                ax.plot([row.devices for row in model], [scale * getattr(row, value) for row in model],
                        color=look.color, linestyle=(0, (4, 3)), linewidth=1, alpha=0.7)
        alone = rows[0].tokens_per_second / rows[0].devices / rows[0].efficiency / 1e3  # of one device
        rate.plot(settings, [alone * setting for setting in settings], color=style.MUTED, linestyle=":", linewidth=1)
    if predicted:
        rate.set_yscale("log")
        style.log_axis(rate.yaxis)
        rate.plot([], [], color=style.MUTED, linestyle=(0, (4, 3)), linewidth=1, label="predicted")
    _finish(fig, rate, below, settings, "devices", "% of ideal")
    below.axhline(100, color=style.MUTED, linestyle=":", linewidth=1)
    shares = [100 * row.efficiency for row in scaling + predicted]
    shares += [100 * end for row in scaling for end in row.efficiency_interval or ()]
    below.set_ylim(10 * math.floor(min(min(shares) - 2, 80) / 10), max(104, 1.02 * max(shares)))
    return fig


CHARTS = {"batch": draw_batch, "scaling": draw_scaling}
