"""The palette of page and figures: each colour in light and dark mode, and the text colour for it.

Figures use the light colours; the page takes both from `colour_css`, so that a script, a line or a
part of a premium looks the same wherever it is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar

from tokengraft.languages.codes import SCRIPT_GROUPS

#: Whether figures are drawn for print: without title, credit or mark, as PDF too.
PLAIN: ContextVar[bool] = ContextVar("plain", default=False)

Pair = tuple[str, str]  # in light mode, in dark mode

GROUND: dict[str, Pair] = {  # by name of the CSS variable
    "paper": ("#fdfcfa", "#121518"),
    "raised": ("#ffffff", "#1a1e22"),
    "sunk": ("#f3f1ec", "#0d0f11"),
    "ink": ("#1c2126", "#e9ecee"),
    "quiet": ("#565f68", "#a9b2ba"),
    "line": ("#dcdad3", "#30363c"),
    "strong-line": ("#b9b6ad", "#4b535b"),
    "accent": ("#a3242a", "#ff8f7e"),
    "link": ("#1f5f95", "#7cc0f2"),
    "less": ("#2f79b5", "#4f97cf"),
    "more": ("#c42f2f", "#e0604f"),
    "unk": ("#f1efe9", "#22272b"),
    "unk-line": ("#dedbd3", "#343b41"),
}
# Okabe and Ito's palette, safe in every common colour vision deficiency; its orange, sky blue and
# purple are darker here, so that every mark stands out from the paper.
SCRIPTS: dict[str, Pair] = dict(
    zip(
        SCRIPT_GROUPS,
        (
            ("#7d8c99", "#8d9ba7"), ("#0072b2", "#4ba3e0"), ("#009e73", "#3fc79d"),
            ("#d55e00", "#f58a4a"), ("#b97f00", "#f0c04c"), ("#2b94cf", "#8ad0f7"),
            ("#c0609a", "#e39cc4"), ("#7b3294", "#bf86d8"), ("#1c2126", "#e9ecee"),
        ),
        strict=True,
    )
)  # fmt: skip
# Lines and their names: each has enough contrast for text.
LINES: tuple[Pair, ...] = (
    ("#a3242a", "#ff8f7e"), ("#1f5f95", "#7cc0f2"), ("#23713f", "#6fd096"), ("#7a3c96", "#d29be8"),
    ("#8a5a00", "#eab64e"), ("#0f6b73", "#5fd0d8"), ("#8f2f63", "#f09cc4"), ("#5566cc", "#a9b4ff"),
    ("#6b5d20", "#cfc07a"), ("#8a4b22", "#e0a37a"), ("#2b4c3f", "#a3cfbb"), ("#4d5a66", "#b3bfca"),
)  # fmt: skip
# Parts of a premium: the one that no graft can remove stands out; the others can be saved.
PARTS: dict[str, Pair] = {
    "floor": ("#16324f", "#9db8d2"),
    "longer": ("#e0a458", "#d98743"),
    "split": GROUND["more"],
}
# Blue below 1, red above, around a light middle in light mode and a dark one in dark mode, with as
# many stops on either side, so that the middle is a premium of 1; both ends stay apart in every
# common colour vision deficiency.
PREMIUM = (
    ("#08306b", "#2567a2", "#66a1cb", "#b2d3e4", "#f6f3ee", "#fbc9a4", "#ef7a4d", "#c42f2f",
     "#5e0a1e"),
    ("#9fd0f5", "#63a5d8", "#3b76a6", "#264a69", "#24282d", "#6b4528", "#b5562f", "#e0604f",
     "#ffb3a8"),
)  # fmt: skip
SHARE = (
    ("#fbfaf5", "#d6e6dc", "#8fc3bb", "#3f93a0", "#1d5f80", "#143259"),
    ("#1d2125", "#22383c", "#2a5a60", "#358089", "#5fb0b4", "#b5e3dc"),
)
# Colours for lengths of tokens, shortest first, as places on the SHARE scale.
LENGTHS = tuple(0.16 + 0.84 * n / 7 for n in range(8))
STEPS = 41  # of each scale; odd, so that a premium of 1 has its own step
_INK, _WHITE, _BLACK = "#14181c", "#ffffff", "#000000"
READABLE = 4.5  # WCAG AA


def ground_css() -> str:
    """The colours of GROUND and LINES as variables of the root element."""
    variables = {f"--{name}": pair for name, pair in GROUND.items()}
    variables |= {f"--c{n}": pair for n, pair in enumerate(LINES)}
    return f":root {{ {' '.join(f'{name}: {_both(*p)};' for name, p in variables.items())} }}"


def colour_css() -> str:
    """Every colour of the page.

    Classes `.p0` … are premiums on a log scale from 1/20 to 20, `.v0` … shares from 0 to 1, `.s0` …
    lengths of tokens, `.g0` … groups of scripts, `.c0` … lines, `.floor` … parts of a premium.
    """
    rules = [ground_css()]
    rules += [f".g{n} {{ --group: {_both(*pair)}; }}" for n, pair in enumerate(SCRIPTS.values())]
    rules += [f".c{n} {{ color: var(--c{n}); }}" for n in range(len(LINES))]
    rules += [f".{name} {{ background: {_both(*pair)}; }}" for name, pair in PARTS.items()]
    rules += [
        f".s{n} {{ background: {_both(*(mix(stops, at) for stops in SHARE))}; }}"
        for n, at in enumerate(LENGTHS)
    ]
    for letter, (light, dark) in (("p", PREMIUM), ("v", SHARE)):
        for step in range(STEPS):
            at = step / (STEPS - 1)
            day, night = mix(light, at), mix(dark, at)
            rules.append(
                f".{letter}{step} {{ background: {_both(day, night)}; "
                f"color: {_both(ink(day), ink(night))}; fill: {_both(day, night)}; }}"
            )
    return "\n".join(rules)


def _both(day: str, night: str) -> str:
    return f"light-dark({day}, {night})"


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

    One always does: a background too dark for black text is dark enough for white.
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
