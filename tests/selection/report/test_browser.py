"""A browser opens the report: on a phone and on a desktop nothing is out of place, loaded, or complained about."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dsel
from dsel.selection.report.page import render_report
from tests.selection.plots import selections

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
        started = running.chromium.launch(executable_path=program, args=ARGUMENTS)
        yield started
        started.close()


def many_columns() -> dsel.Selection:
    """200 of 240 columns with long labels."""
    import pandas as pd

    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        rng.normal(size=(400, 240)), columns=[f"station_north_temperature_{i:03d}_mean" for i in range(240)]
    )
    return dsel.select(X, X.sum(axis=1) + rng.normal(size=400), k=200, method="forward")


KINDS = {**{kind: selections.ALL[kind] for kind in ("half certified", "several targets", "hostile")},
         "many columns": many_columns}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_browser_shows_it_whole_and_loads_nothing_else(browser: Any, tmp_path: Path, kind: str) -> None:
    file = tmp_path / "report.html"
    file.write_text(render_report(KINDS[kind]()))
    for name, width in WIDTHS.items():
        page = browser.new_page(viewport={"width": width, "height": 900})
        complaints: list[str] = []
        requests: list[str] = []
        page.on("console", lambda message, to=complaints: to.append(message.text))
        page.on("pageerror", lambda error, to=complaints: to.append(str(error)))
        page.on("request", lambda request, to=requests: to.append(request.url))
        page.goto(file.as_uri())
        assert complaints == []
        assert [url for url in requests if not url.startswith("data:")] == [file.as_uri()]
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
        assert page.evaluate(TOO_WIDE) == []
        assert page.locator("figure svg:visible").count() >= 4
        page.close()
