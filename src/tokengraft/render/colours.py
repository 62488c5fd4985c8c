"""Colours between stops, what reads on them, and the heat maps' as CSS classes, light and dark."""

from __future__ import annotations

from collections.abc import Sequence

# Light: as the figures print them. Dark: the same hues around a dark middle.
_PREMIUM = (
    ("#08306b", "#2f79b5", "#9cc9e1", "#f6f3ee", "#fbc9a4", "#ef7a4d", "#c42f2f", "#5e0a1e"),
    ("#9fd0f5", "#4f97cf", "#27567d", "#24282d", "#6b4528", "#b5562f", "#e0604f", "#ffb3a8"),
)
SHARE = (
    ("#fbfaf5", "#d6e6dc", "#8fc3bb", "#3f93a0", "#1d5f80", "#143259"),
    ("#1d2125", "#22383c", "#2a5a60", "#358089", "#5fb0b4", "#b5e3dc"),
)
STEPS = 41  # of each scale; odd, so that a premium of 1 has its own
_INK, _WHITE, _BLACK = "#14181c", "#ffffff", "#000000"
READABLE = 4.5  # WCAG AA


def colour_css() -> str:
    """Classes `.p0` … for premiums on a log scale from 1/20 to 20, `.v0` … for shares 0 to 1."""
    rules = []
    for letter, (light, dark) in (("p", _PREMIUM), ("v", SHARE)):
        for step in range(STEPS):
            at = step / (STEPS - 1)
            day, night = mix(light, at), mix(dark, at)
            rules.append(
                f".{letter}{step} {{ background: light-dark({day}, {night}); "
                f"color: light-dark({ink(day)}, {ink(night)}); fill: light-dark({day}, {night}); }}"
            )
    return "\n".join(rules)


def mix(stops: Sequence[str], at: float) -> str:
    """The colour at `at` (0 to 1) between evenly spaced `stops`."""
    place = at * (len(stops) - 1)
    first = min(int(place), len(stops) - 2)
    share = place - first
    low, high = rgb(stops[first]), rgb(stops[first + 1])
    mixed = [round(255 * (a + (b - a) * share)) for a, b in zip(low, high, strict=True)]
    return "#" + "".join(f"{part:02x}" for part in mixed)


def ink(background: str) -> str:
    """The text colour for `background`: the first that reaches a contrast of 4.5.

    One always does: what is too dark for black is dark enough for white.
    """
    return next(c for c in (_INK, _WHITE, _BLACK) if contrast(c, background) >= READABLE)


def contrast(one: str, other: str) -> float:
    """WCAG contrast ratio of two colours."""
    light, dark = sorted((luminance(rgb(one)), luminance(rgb(other))), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(rgb: Sequence[float]) -> float:
    """WCAG's relative luminance of a colour whose parts are 0 to 1."""
    linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in rgb]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def rgb(colour: str) -> list[float]:
    """The parts of `#rrggbb`, 0 to 1."""
    return [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
