"""Colours of plots and pages, with enough contrast in the light and the dark theme (WCAG 2.2, 1.4.3 and 1.4.11).

`SERIES` is for both themes: each colour has 3:1 against both pages, and readers with a colour vision deficiency can
distinguish any two. Curves also differ by marker and dash. Texts have 4.5:1 in their own theme.
"""

from dataclasses import asdict, dataclass

SERIES = ("#0072b2", "#d55e00", "#19a68a", "#aa79f2", "#994c6b", "#9326ff")
"""Blue, vermilion, teal, lavender, plum, violet: for curves, bars and outlines, not for text."""
REFERENCE = "#767676"
"""Grey, for reference curves."""
DASHES: tuple[tuple[int, ...], ...] = ((), (6, 2), (2, 2), (8, 2, 2, 2), (4, 2, 1, 2, 1, 2), (10, 3))
"""Lengths of line and gap for each of `SERIES`; the first is solid."""


@dataclass(frozen=True, kw_only=True)
class Theme:
    """Colours of a page."""

    page: str
    surface: str
    """Behind tables' headings and notes; texts have 4.5:1 against it too."""
    ink: str
    muted: str
    link: str
    line: str
    """Outlines and axes: 3:1 against the page."""
    grid: str
    """Decoration: no meaning, and no contrast."""
    good: str
    warning: str
    bad: str


LIGHT = Theme(
    page="#ffffff",
    surface="#f3f5f7",
    ink="#1f2328",
    muted="#57606a",
    link="#0060a0",
    line="#818b98",
    grid="#dddddd",
    good="#1a6e32",
    warning="#8a5a00",
    bad="#b91c26",
)
DARK = Theme(
    page="#14181d",
    surface="#1f252d",
    ink="#e6edf3",
    muted="#a3adb8",
    link="#6cb6ff",
    line="#77828e",
    grid="#333b44",
    good="#5cc96f",
    warning="#e0a83a",
    bad="#ff8078",
)


def stylesheet() -> str:
    """Return CSS variables `--page`, `--ink` ... and `--series-0` ...: those of the reader's theme, on paper light."""
    light = _variables(LIGHT) + "".join(f"--series-{at}:{colour};" for at, colour in enumerate(SERIES))
    return (
        f":root{{color-scheme:light dark;{light}--reference:{REFERENCE};}}"
        f"@media screen and (prefers-color-scheme:dark){{:root{{{_variables(DARK)}}}}}"
    )


def rgb(colour: str) -> tuple[int, int, int]:
    """Return red, green and blue of `#0072b2`, from 0 to 255."""
    red, green, blue = bytes.fromhex(colour.removeprefix("#"))
    return red, green, blue


def _variables(theme: Theme) -> str:
    return "".join(f"--{name}:{colour};" for name, colour in asdict(theme).items())
