"""The timeline of a profiled step as SVG: a strip of its phases, and one of the types of its kernels."""

from collections.abc import Callable, Sequence

from markupsafe import Markup, escape
from profiles import Profile, Stretch

LOOKS = 12  # classes t0, t1, ... of page.css
NO_GAP_MS = 0.006  # the 5 us of gaps that stretches close, and more for rounding
_WIDTH, _STRIP, _TEXT = 1000, 34, 18  # in the SVG's own units


def _strip(stretches: Sequence[Stretch], name_of: Callable[[Stretch], str], y: int, end_ms: float) -> tuple[str, str]:
    """The strip's rectangles, those of one name in a group with a tip, and its legend, the longest first."""
    joined: dict[str, list[list[float]]] = {}  # begins and ends of what has no gap, by name
    last, done = None, 0.0
    for stretch in stretches:
        name, end = name_of(stretch), stretch.start_ms + stretch.ms
        if name == last and stretch.start_ms - done <= NO_GAP_MS:
            joined[name][-1][1] = end
        else:
            joined.setdefault(name, []).append([stretch.start_ms, end])
        last, done = name, end
    total = {name: sum(stretch.ms for stretch in stretches if name_of(stretch) == name) for name in joined}
    names = sorted(joined, key=lambda name: -total[name])
    scale, groups, legend = _WIDTH / end_ms, [], []
    for i, name in enumerate(names):
        look = f"t{i % LOOKS}"
        path = "".join(f"M{begin * scale:.2f} {y}H{max(end * scale, begin * scale + 0.3):.2f}v{_STRIP}H{begin * scale:.2f}z"
                       for begin, end in joined[name])
        tip = f"{name}: {total[name]:.3g} ms, {100 * total[name] / end_ms:.1f} % of the step"
        groups.append(f'<path class="{look}" d="{path}"><title>{escape(tip)}</title></path>')
        legend.append(f'<li><span class="{look}"></span>{escape(name)}</li>')
    return "".join(groups), f"<ul>{''.join(legend)}</ul>"


def figure(profile: Profile) -> Markup:
    """The last traced step of a profile; "" for a profile without a timeline."""
    if not profile.timeline:
        return Markup()
    end_ms = max(stretch.start_ms + stretch.ms for stretch in profile.timeline)
    phases, types = (_strip(profile.timeline, name_of, y, end_ms) for name_of, y in (
        (lambda stretch: stretch.phase, 0), (lambda stretch: stretch.type, _STRIP + 6)))
    bottom = 2 * _STRIP + 6
    scale = f'<text x="0" y="{bottom + _TEXT}">0</text><text x="{_WIDTH}" y="{bottom + _TEXT}">{end_ms:.4g} ms</text>'
    title = f"{profile.title}: a step from its begin, phases above, types of kernels below"
    return Markup(f'<figure class="timeline"><svg viewBox="0 0 {_WIDTH} {bottom + _TEXT + 4}" role="img" '
                  f'aria-label="{escape(title)}">{phases[0]}{types[0]}{scale}</svg>{phases[1]}{types[1]}</figure>')
