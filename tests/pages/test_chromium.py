"""The browser of these tests finds what is wrong with a page."""

import pytest

from tests.pages.chromium import Browser

WELL = "data:text/html,<!doctype html><html lang=en><title>Well</title><main><h1>Well</h1><button>Go</button></main>"
PALE = WELL + "<style>h1{color:%23ddd} @media(prefers-color-scheme:dark){h1{color:%23000}}</style>"
"""Pale on white in the light theme alone."""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_violations_are_found_in_the_theme_that_has_them(browser: Browser, dark: bool):
    with browser.page(WELL, dark=dark) as page:
        assert page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches") is dark
        assert page.violations() == []
        assert page.names("button") == ["Go"]
        assert page.first_paint() > 0
        page.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Go"
        page.open(PALE)
        assert [found.partition(":")[0] for found in page.violations()] == ([] if dark else ["color-contrast"])


def test_errors_of_scripts_are_recorded(browser: Browser):
    with browser.page(WELL) as page:
        page.evaluate("setTimeout(() => { throw new Error('lost') }); 0")
        page.evaluate("new Promise(done => setTimeout(done, 50))")
        assert "Error: lost" in page.errors[0]
        page.errors.clear()
