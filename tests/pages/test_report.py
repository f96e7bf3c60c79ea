"""The page of `./hpc report` in a real browser: both themes, a narrow window, paper, and the keyboard."""

import base64
from pathlib import Path

import pytest

from cli.display.report_page import render
from tests.cli.display.reports import report
from tests.pages.chromium import Browser


@pytest.fixture(scope="module", params=[64])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(render(report(request.param)), encoding="utf-8")
    return path.as_uri()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_report_has_no_accessibility_violations(browser: Browser, url: str, dark: bool):
    with browser.page(url, dark=dark) as page:
        assert page.violations() == []
        page.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "To the content"


def test_a_narrow_window_scrolls_tables_and_not_the_page(browser: Browser, url: str):
    with browser.page(url, width=400) as page:
        assert page.evaluate("document.documentElement.scrollWidth") == 400
        assert page.violations() == []


def test_the_printed_page_is_light_and_complete(browser: Browser, url: str, tmp_path: Path):
    with browser.page(url, dark=True, width=680) as page:
        dark = {"name": "prefers-color-scheme", "value": "dark"}
        page.call("Emulation.setEmulatedMedia", media="print", features=[dark])
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert page.evaluate("getComputedStyle(document.querySelector('nav')).display") == "none"
        wide = "[...document.querySelectorAll('.wide')].filter(e => e.scrollWidth > document.body.clientWidth)"
        assert page.evaluate(f"{wide}.map(e => e.getAttribute('aria-label'))") == []
        assert page.violations() == []
        printed = base64.b64decode(page.call("Page.printToPDF", preferCSSPageSize=True)["data"])
        assert printed.startswith(b"%PDF")
