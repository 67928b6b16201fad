"""Charts over a setting that changes between runs: the batch, and the number of devices."""

import math
from collections import defaultdict

import style
from layout import legend_right
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter
from results import Results, Row


def _series(data: Results) -> dict[str, dict[int, Row]]:
    """The rows of each rung or peer that was measured at two batches or more, by batch; rungs first. Only rows on one
    device with the first model and sequence length count, in the configuration that was measured at most batches. Where
    several results measured the same, the one with the most batches counts. A rung at two batches is left out beside one
    at more, unless a peer was measured there too."""
    files: dict[tuple[str, str], dict[int, Row]] = defaultdict(dict)
    for workload, row in data.measured():
        first = data.workloads[0]
        if row.tokens_per_second and (workload.model, workload.T, workload.devices) == (first.model, first.T, 1):
            files[row.rung, workload.file][workload.B] = row
    found: dict[str, list[tuple[int, Row]]] = defaultdict(list)
    for (name, _), rows in sorted(files.items(), key=lambda item: len(item[1])):
        found[name] += rows.items()
    series = {name: max(({B: row for B, row in rows if row.alike(one)} for _, one in rows), key=len)
              for name, rows in found.items()}
    several = {name: dict(sorted(rows.items())) for name, rows in sorted(series.items()) if len(rows) > 1}
    most = max(map(len, several.values()), default=0)
    peers = {name: rows for name, rows in several.items() if next(iter(rows.values())).peer}
    swept = {name: rows for name, rows in several.items() if name not in peers and (
        len(rows) >= min(3, most) or any(peer.endswith(f"/{name}") for peer in peers))}
    return swept | peers


def _over(ax, settings: list[int], label: str) -> None:
    """Sets a logarithmic x axis, with a number at each power of two and a tick at settings between."""
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
            _mark(ax, setting, number, look, f"{name} at {setting}: {number:,.4g}")


def _mark(ax, x: float, y: float, look: style.Line, tip: str) -> None:
    style.mark(ax, x, y, tip, marker=look.marker, color=look.color, markersize=5, linestyle="none")


def _figure(data: Results, model: str, T: int, legend: list[str], title: str, pairs: int = 1):
    """A figure with `pairs` pairs of axes: throughput above, another quantity below. Returns it and the axes."""
    gaps = [0.2, 0.12] if pairs == 1 else [0.45, 0.12] + [0.75, 0.12] * (pairs - 1)
    return style.figure(title, f"{data.device}  ·  {model}, T = {T}", [2.4, 1.5] * pairs, gaps, 0.85,
                        0.25 + style.legend_width(legend))


def _finish(rate, below, settings: list[int], axis: str, units: tuple[str, str]) -> None:
    """Sets up the axes of a pair, once everything is drawn."""
    for ax, label in zip((rate, below), units):
        _over(ax, settings, axis)
        ax.set_ylabel(label)
        ax.set_ylim(0)
        ax.yaxis.set_label_coords(-0.55 / (ax.get_position().width * style.WIDTH), 0.5)
    below.set_xlim(rate.get_xlim())
    rate.tick_params(axis="x", labelbottom=False)
    rate.set_xlabel("")


def draw_batch(data: Results):
    """Throughput and peak memory over the batch."""
    series = _series(data)
    if not series:
        return "no rung was measured at two batches: `stepladder run --batch 2,4,8,16,32,64,128` does"
    settings = sorted({setting for rows in series.values() for setting in rows})
    first = data.workloads[0]
    fig, (rate, below) = _figure(data, first.model, first.T, list(series), "Throughput over the batch")
    _plot(rate, series, lambda row: row.tokens_per_second / 1e3)
    _plot(below, series, lambda row: row.live_gib)
    _finish(rate, below, settings, "batch", ("thousand tokens/s", "live GiB"))
    legend_right(fig, rate, rate.get_legend_handles_labels()[0], lines=True)
    return fig


def _scaling_of_one_batch(rate, below, lines: dict[str, list], predicted: list, looks: dict[str, style.Line],
                          settings: list[int]) -> None:
    """Draws the pair of axes of one batch: for each rung, tokens/s per device above, and below what share that
    is of the tokens/s of a device by itself."""
    for rung, rows in lines.items():
        look = looks[rung]
        rows = sorted(rows, key=lambda row: row.devices)
        alone = (rows[0].alone or math.nan) / 1e3
        model = sorted((row for row in predicted if row.rung == rung), key=lambda row: row.devices)
        for ax, first, unit, of in ((rate, alone, lambda row: 1e-3 / row.devices, lambda row: row.tokens_per_second),
                                    (below, 100, lambda _: 100, lambda row: row.efficiency)):
            points = [unit(row) * of(row).value for row in rows]
            errors = [[0, *(unit(row) * of(row).errors[side][0] for row in rows)] for side in (0, 1)]
            ax.errorbar([1, *(row.devices for row in rows)], [first, *points], yerr=errors, capsize=3, color=look.color,
                        linestyle=look.linestyle, marker=look.marker, markersize=5, linewidth=1.6, label=rung)
            for row, point in zip(rows, points):
                machines = f" in {row.machines} machines" if row.machines > 1 else ""
                _mark(ax, row.devices, point, look, f"{rung} on {row.devices}{machines}: "
                      f"{row.tokens_per_second.value / 1e3:,.4g} thousand tokens/s, {100 * row.efficiency.value:.1f} %")
            if model:
                ax.plot([row.devices for row in model], [unit(row) * of(row).value for row in model],
                        color=look.color, linestyle=(0, (4, 3)), linewidth=1, alpha=0.7)
    _finish(rate, below, settings, "devices", ("thousand tokens/s a device", "% of ideal"))
    below.axhline(100, color=style.MUTED, linestyle=":", linewidth=1)


def draw_scaling(data: Results):
    """What each of several devices does over their number, with its interval, and what share that is of one by itself:
    flat is ideal. Of several results that scaled the same, the one with the most numbers of devices. Dashed is what a
    model predicts from one device and nominal links, to 64 devices; nobody measured that."""
    if not data.scaling:
        return "no rung was measured on one device and on several: `stepladder run --devices 1,2,4` does"
    setting = data.scaling[0].setting
    files: dict[tuple[int, bool], dict[str, dict[str, list]]] = {}  # by batch and whether it is shared, rung and file
    for row in data.scaling:
        if row.setting == setting:
            files.setdefault((row.batch, row.shared), {}).setdefault(row.rung, {}).setdefault(row.file, []).append(row)
    most = {batch: {rung: max(rows.values(), key=len) for rung, rows in rungs.items()}
            for batch, rungs in sorted(files.items())}
    predicted = [row for row in data.predicted if row.rung in most.get((row.batch, False), ())
                 and row.file == most[row.batch, False][row.rung][0].file]
    names = list(dict.fromkeys(rung for rungs in most.values() for rung in rungs))
    measured = [row for rungs in most.values() for rows in rungs.values() for row in rows]
    settings = sorted({1} | {row.devices for row in measured + predicted})
    fig, axes = _figure(data, *setting, [*names, *(["predicted"] if predicted else [])], "Throughput over devices",
                        len(most))
    looks = style.lines(["", *names])
    for pair, ((batch, shared), lines) in enumerate(most.items()):
        rate, below = axes[2 * pair:2 * pair + 2]
        if len(most) > 1 or shared:
            rate.set_title(f"B = {batch}" + ", shared by the devices" * shared)
        of_batch = [row for row in predicted if row.batch == batch and not shared]
        _scaling_of_one_batch(rate, below, lines, of_batch, looks, settings)
    shares = [100 * end for row in measured + predicted for end in (row.efficiency.low, row.efficiency.high)]
    highest = max(ax.get_ylim()[1] for ax in axes[::2])
    for rate, below in zip(axes[::2], axes[1::2]):
        rate.set_ylim(0, highest)
        below.set_ylim(10 * math.floor(min(min(shares) - 2, 80) / 10), max(104, 1.02 * max(shares)))
    handles = {label: handle for ax in axes[::2] for handle, label in zip(*ax.get_legend_handles_labels())}
    if predicted:
        (handles["predicted"],) = axes[0].plot([], [], color=style.MUTED, linestyle=(0, (4, 3)), linewidth=1,
                                               label="predicted")
    legend_right(fig, axes[0], [handles[name] for name in handles], lines=True)
    return fig


CHARTS = {"batch": draw_batch, "scaling": draw_scaling}
