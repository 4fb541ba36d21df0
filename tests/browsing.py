"""A real browser for tests: the system's Chromium, without a window and without a network of its own."""

import os
import shutil
from contextlib import contextmanager

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
MISSING = "No Chromium here: nobody has looked at the pages. Install it (Debian: apt-get install chromium)."
# As root there is no sandbox to be had; nothing is looked up that no page has asked for.
QUIETLY = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip


def program() -> str | None:
    """Return the path of the browser."""
    return next(filter(None, map(shutil.which, NAMES)), None)


@pytest.fixture(scope="session")
def chromium():
    """The browser; where there must be one (CI=true), its absence is a failure, elsewhere a loud gap."""
    place = program()
    if place is None:
        missing = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        missing(MISSING)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=place, args=QUIETLY)
        yield browser
        browser.close()


@contextmanager
def opened(browser, address, **options):
    """A page that remembers what it said on the console, and what it asked for."""
    context = browser.new_context(**options)
    tab = context.new_page()
    tab.heard, tab.asked = [], []
    tab.on("console", lambda message: tab.heard.append(message.text))
    tab.on("pageerror", lambda error: tab.heard.append(str(error)))
    tab.on("request", lambda request: tab.asked.append(request.url))
    tab.goto(address)
    try:
        yield tab
    finally:
        context.close()


def size(width):
    return {"viewport": {"width": width, "height": 800}}


def contrast(one, other):
    """Return the contrast ratio of two colors (WCAG 2.1)."""

    def light(colour):
        parts = [float(part) / 255 for part in colour[4:-1].split(",")]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((light(one), light(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


# What sticks out to the right of the page, in pixels.
WIDE = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
INKS = """() => [...document.querySelectorAll("h1, h2, p, td, th, dd, dt, text, summary, figcaption, strong")]
    .map((one) => getComputedStyle(one)[one.tagName === "text" ? "fill" : "color"])"""


def require_readable(tab, width):
    """Nothing was said or fetched, nothing sticks out, every figure is seen, all words stand out."""
    assert tab.heard == []
    assert tab.asked == [tab.url]
    assert tab.evaluate(WIDE) == 0
    for figure in tab.locator("figure svg").all():
        box = figure.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
        assert box["height"] > 60
        assert figure.is_visible()
    ground = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    found = {shade for shade in tab.evaluate(INKS) if shade.startswith("rgb(")}
    assert min(contrast(shade, ground) for shade in found) >= 4.5
    return ground
