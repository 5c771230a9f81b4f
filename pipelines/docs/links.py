"""Find links of a built site that lead nowhere, and what its pages would fetch from other hosts."""

from __future__ import annotations

from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class _Page(HTMLParser):
    """What a page links to, what it fetches, and the anchors that it has."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if values.get(name)}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag in ("img", "script", "iframe", "source") and values.get("src"):
            self.fetched.append(values["src"])
        if tag == "link" and values.get("rel") != "canonical":
            self.fetched.append(values.get("href", ""))


@cache
def _read(path: Path) -> _Page:
    page = _Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def broken_links(site: Path) -> list[str]:
    """Return a sentence for each link, image or anchor that does not exist, and for each fetch from another host."""
    found: list[str] = []
    for path in sorted(site.rglob("*.html")):
        if "_static" in path.parts:
            continue
        name, page = path.relative_to(site), _read(path)
        for address in (*page.links, *page.fetched):
            if problem := _problem(path, address):
                found.append(f"{name}: {problem}: {address}")
        found += [f"{name}: it is fetched from another host: {a}" for a in page.fetched if urlsplit(a).netloc]
    return found


def _problem(path: Path, address: str) -> str:
    """Return what is wrong with an address on the page at `path`, or an empty string."""
    parts = urlsplit(address)
    if parts.scheme or parts.netloc:
        return ""
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if target.is_dir():
        target = target / "index.html"
    if not target.is_file():
        return "there is no such page"
    anchor = unquote(parts.fragment)
    if anchor and target.suffix == ".html" and anchor not in _read(target).anchors:
        return "there is no such anchor"
    return ""
