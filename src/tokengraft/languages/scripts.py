"""Scripts and their groups, the single source for figures and page.

A figure gives each group one colour and the page's legend one entry, in this order.
"""

from __future__ import annotations

GROUPS = {
    "Latin": ("Latn",),
    "Cyrillic": ("Cyrl",),
    "Arabic": ("Arab",),
    "Devanagari": ("Deva",),
    "Other Indic": (
        *("Beng", "Gujr", "Guru", "Knda", "Mlym", "Orya", "Sinh", "Taml", "Telu"),
        *("Olck", "Gran", "Cakm"),
    ),
    "Chinese, Japanese, Korean": ("Hans", "Hant", "Hani", "Jpan", "Hang", "Kore", "Hira", "Kana"),
    "Ethiopic": ("Ethi",),
    "Myanmar, Khmer, Thai, Lao": ("Mymr", "Khmr", "Thai", "Laoo", "Lana", "Tavt"),
}
OTHER = "Other scripts"
#: The groups by name, in the order of a legend.
NAMES = (*GROUPS, OTHER)
#: Scripts written with the letters of another, whose font they share.
SAME_LETTERS = {"Hani": "Hans", "Kore": "Hang", "Hira": "Jpan", "Kana": "Jpan"}
_GROUP_OF = {script: group for group, scripts in GROUPS.items() for script in scripts}


def script_group(script: str) -> str:
    """The group of a script (ISO 15924)."""
    return _GROUP_OF.get(script, OTHER)
