"""Colours of plots and pages, with enough contrast in the light and the dark theme (WCAG 2.2, 1.4.3 and 1.4.11).

`SERIES` is for both themes: each colour has 3:1 against both pages, and readers with a colour vision deficiency can
distinguish any two. Curves also differ by marker and dash. Texts have 4.5:1 in their own theme.
"""

from collections.abc import Mapping

SERIES = ("#0072b2", "#d55e00", "#19a68a", "#aa79f2", "#994c6b", "#9326ff")
"""Blue, vermilion, teal, lavender, plum, violet: for curves, bars and outlines, not for text."""
REFERENCE = "#767676"
"""Grey, for reference curves."""
DASHES: tuple[tuple[int, ...], ...] = ((), (6, 2), (2, 2), (8, 2, 2, 2), (4, 2, 1, 2, 1, 2), (10, 3))
"""Lengths of line and gap for each of `SERIES`; the first is solid."""
_COLOURS = {
    "page": ("#ffffff", "#14181d"),
    "surface": ("#f3f5f7", "#1f252d"),  # behind tables' headings and notes; texts have 4.5:1 against it too
    "ink": ("#1f2328", "#e6edf3"),
    "muted": ("#57606a", "#a3adb8"),
    "link": ("#0060a0", "#6cb6ff"),
    "line": ("#818b98", "#77828e"),  # outlines and axes: 3:1 against the page
    "grid": ("#dddddd", "#333b44"),  # decoration: no meaning, and no contrast
    "good": ("#1a6e32", "#5cc96f"),
    "warning": ("#8a5a00", "#e0a83a"),
    "bad": ("#b91c26", "#ff8078"),
}
"""Colours of a page, in the light and in the dark theme."""
LIGHT, DARK = ({name: pair[theme] for name, pair in _COLOURS.items()} for theme in (0, 1))


def stylesheet() -> str:
    """Return CSS variables `--page`, `--ink` ... and `--series-0` ...: those of the reader's theme, on paper light."""
    light = _variables(LIGHT) + "".join(f"--series-{at}:{colour};" for at, colour in enumerate(SERIES))
    return (
        f":root{{color-scheme:light dark;{light}--reference:{REFERENCE};}}"
        f"@media screen and (prefers-color-scheme:dark){{:root{{{_variables(DARK)}}}}}"
    )


def _variables(theme: Mapping[str, str]) -> str:
    return "".join(f"--{name}:{colour};" for name, colour in theme.items())
