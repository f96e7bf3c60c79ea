"""The palette: contrast by WCAG 2.2, and colours that stay apart with a colour vision deficiency."""

import math
from itertools import combinations

import pytest

from cluster.report.palette import DARK, DASHES, LIGHT, REFERENCE, SERIES, stylesheet

# Protanopia, deuteranopia and tritanopia: Machado, Oliveira and Fernandes, "A Physiologically-based Model for
# Simulation of Color Vision Deficiency", 2009, severity 1.0; for linear RGB.
VISION = {
    "usual": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.01182, 0.04294, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.3039)),
}


def linear(colour: str) -> list[float]:
    shares = [part / 255 for part in bytes.fromhex(colour.removeprefix("#"))]
    return [share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]


def luminance(colour: str) -> float:
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear(colour), strict=True))


def contrast(one: str, other: str) -> float:
    """https://www.w3.org/TR/WCAG22/#dfn-contrast-ratio"""
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def perceived(colour: str, matrix: tuple[tuple[float, ...], ...]) -> list[float]:
    """Return a colour with a kind of vision, in Oklab times 100, whose distances are those that people perceive."""
    value = linear(colour)
    red, green, blue = (min(1.0, max(0.0, sum(map(math.prod, zip(row, value, strict=True))))) for row in matrix)
    long, medium, short = (
        part ** (1 / 3)
        for part in (
            0.4122214708 * red + 0.5363325363 * green + 0.0514459929 * blue,
            0.2119034982 * red + 0.6806995451 * green + 0.1073969566 * blue,
            0.0883024619 * red + 0.2817188376 * green + 0.6299787005 * blue,
        )
    )
    return [
        100 * (0.2104542553 * long + 0.7936177850 * medium - 0.0040720468 * short),
        100 * (1.9779984951 * long - 2.4285922050 * medium + 0.4505937099 * short),
        100 * (0.0259040371 * long + 0.7827717662 * medium - 0.8086757660 * short),
    ]


def test_contrast_has_the_values_of_wcag():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_series_and_outlines_have_a_contrast_of_three_to_one_and_texts_of_four_and_a_half(theme: dict[str, str]):
    for colour in (*SERIES, REFERENCE):
        assert contrast(colour, theme["page"]) >= 3, colour
    texts = ("ink", "muted", "link", "good", "warning", "bad")
    for name, least in (("line", 3), *((name, 4.5) for name in texts)):
        colour = theme[name]
        assert min(contrast(colour, background) for background in (theme["page"], theme["surface"])) >= least, name


@pytest.mark.parametrize("matrix", VISION.values(), ids=VISION)
def test_series_differ_with_every_colour_vision(matrix):
    colours = [perceived(colour, matrix) for colour in SERIES]
    # The palette of Okabe and Ito, made for this, has 7.6 by the same measure.
    assert min(math.dist(*pair) for pair in combinations(colours, 2)) > 11


def test_series_differ_by_dash():
    assert len(set(DASHES)) == len(DASHES) == len(SERIES) == len(set(SERIES))


def test_the_stylesheet_has_both_themes_and_prints_the_light_one():
    light, dark = stylesheet().split("@media screen and (prefers-color-scheme:dark)")
    for theme, css in ((LIGHT, light), (DARK, dark)):
        assert [name for name, colour in theme.items() if f"--{name}:{colour};" not in css] == []
    assert all(f"--series-{at}:{colour};" in light for at, colour in enumerate(SERIES))
