"""A browser opens the report: on a phone and on a desktop nothing is out of place, loaded, or complained about."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli_runner import LIMIT
from tests.selection.report.pages import report_of

WIDTHS = {"phone": 390, "desktop": 1280}
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
#: Elements that reach over the right edge of the page and are not in a box that scrolls.
TOO_WIDE = """() => [...document.querySelectorAll("body *")].filter(e =>
    e.getBoundingClientRect().right > document.documentElement.clientWidth + 1 && !e.closest(".scroll, svg, .skip")
).map(e => e.tagName + "." + e.className)"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("there is no Chromium: apt-get install chromium")
    with playwright.sync_playwright() as running:
        started = running.chromium.launch(executable_path=program, args=ARGUMENTS, timeout=1000 * LIMIT)
        yield started
        started.close()


@pytest.fixture
def address(tmp_path: Path) -> Callable[[str], str]:
    """Return the address of the report of a kind of selection."""

    def write(kind: str) -> str:
        file = tmp_path / "report.html"
        file.write_text(report_of(kind))
        return file.as_uri()

    return write


def opened(browser: Any, **options: Any) -> Any:
    """Return a new page, which waits as long as a busy machine needs."""
    page = browser.new_page(**options)
    page.set_default_timeout(1000 * LIMIT)
    return page


@pytest.mark.parametrize("kind", ["half certified", "several targets", "hostile", "many columns", "with alternatives"])
def test_a_browser_shows_it_whole_and_loads_nothing_else(browser: Any, address: Any, kind: str) -> None:
    file = address(kind)
    page = opened(browser)
    complaints: list[str] = []
    requests: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(file)
    for width in WIDTHS.values():
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(TOO_WIDE) == []
        assert page.locator("figure svg:visible").count() >= 4
    assert complaints == []
    assert [url for url in requests if not url.startswith("data:")] == [file]
    page.close()


@pytest.mark.parametrize(("scheme", "width"), [("light", WIDTHS["desktop"]), ("dark", WIDTHS["phone"])])
def test_a_checker_of_accessibility_finds_no_fault(browser: Any, address: Any, scheme: str, width: int) -> None:
    """The rules of axe-core: contrast, names of regions, heads of tables, order of headings, the keyboard."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    size = {"width": width, "height": 900}
    page = opened(browser, viewport=size, color_scheme=scheme, bypass_csp=True)  # the checker is a script
    page.goto(address("half certified"))
    assert axe.Axe().run(page).response["violations"] == []
    page.close()


def test_tables_scroll_by_keyboard(browser: Any, address: Any) -> None:
    page = opened(browser, viewport={"width": WIDTHS["phone"], "height": 900}, bypass_csp=True)  # waiting is a script
    page.goto(address("several targets"))
    page.get_by_role("region", name="Table of chosen columns").focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_function("document.activeElement.scrollLeft > 0")
    page.close()


def test_it_prints_every_row(browser: Any, address: Any) -> None:
    page = opened(browser, viewport={"width": 700, "height": 900})
    page.goto(address("many columns"))
    page.emulate_media(media="print")
    cut = "[...document.querySelectorAll('.scroll')].filter(e => e.scrollHeight > e.clientHeight + 1).length"
    assert page.evaluate(cut) == 0
    page.close()
