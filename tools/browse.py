"""The built documentation in a real browser: every page, on a phone and on a desk, light and dark.

    python tools/browse.py SITE [--pictures FOLDER]

In: the folder that `mkdocs build` wrote, and a Chromium. Out: a line for each fault on stdout, the
exit status, and pictures of the first pages. Invariant: a page may not be wider than its screen nor
hide the end of what it has, its script may not fail nor ask for anything from elsewhere, its links
within the site end at a page and a place that there are, and the search finds.
"""

from __future__ import annotations

import argparse
import functools
import http.server
import importlib.util
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag

ROOT = Path(__file__).resolve().parents[1]
SCREENS = {"phone": (390, 844, True), "desk": (1400, 1000, False)}
SCHEMES = {"light": "default", "dark": "slate"}
PICTURED = ("index.html", "getting-started.html", "benchmarks.html")
SEARCHED = "recompile"
#: what ends beyond the screen, but for what can be scrolled to it
HIDDEN = """[...document.querySelectorAll("article *")].filter(one => {
  if (one.getBoundingClientRect().right <= innerWidth + 1) return false;
  for (let up = one; up !== document.body; up = up.parentElement)
    if (["auto", "scroll"].includes(getComputedStyle(up).overflowX)) return false;
  return true;
}).map(one => one.tagName + " " + one.textContent.trim().slice(0, 40)).slice(0, 3)"""
READ = """({wide: document.documentElement.scrollWidth, hidden: HIDDEN,
  scheme: document.body.dataset.mdColorScheme,
  places: [...document.querySelectorAll("[id]")].map(one => one.id),
  links: [...document.querySelectorAll("a[href]")].map(one => one.href)})""".replace(
    "HIDDEN", HIDDEN
)


def load_browser() -> Any:
    """The module that drives Chromium for the tests of a trace's page."""
    place = ROOT / "packages" / "meta" / "tests" / "page" / "chromium.py"
    spec = importlib.util.spec_from_file_location("chromium", place)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves a folder and says nothing."""

    def log_message(self, *_: Any) -> None:
        """Not on stderr."""


def show(browser: Any, address: str) -> None:
    """Open a page and wait until all of it is there."""
    browser.page("Page.navigate", {"url": address})
    while browser.run("document.readyState + location.href") != "complete" + address:
        if time.monotonic() > browser.deadline:
            sys.exit(f"{address} does not load")
        time.sleep(0.02)


def faults(browser: Any, site: Path, home: str, pictures: Path | None) -> list[str]:
    """What is wrong, a line each."""
    found: list[str] = []
    pages = [path.relative_to(site).as_posix() for path in sorted(site.rglob("*.html"))]
    places: dict[str, set[str]] = {}
    links: set[tuple[str, str]] = set()
    for scheme, expected in SCHEMES.items():
        feature = {"name": "prefers-color-scheme", "value": scheme}
        browser.page("Emulation.setEmulatedMedia", {"features": [feature]})
        for screen, (width, height, mobile) in SCREENS.items():
            size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile}
            browser.page("Emulation.setDeviceMetricsOverride", size)
            for page in pages if scheme == "light" else PICTURED:
                show(browser, f"{home}/{page}")
                patience = time.monotonic() + 5  # the scheme is chosen by the page's script
                while (seen := browser.run(READ))["scheme"] != expected:
                    if time.monotonic() > patience:
                        break
                    time.sleep(0.05)
                browser.run("localStorage.clear()")  # the scheme, which is kept for later visits
                where = f"{page} ({screen}, {scheme})"
                if seen["wide"] > width or seen["hidden"]:
                    found.append(f"{where} is {seen['wide']} wide, and hides {seen['hidden']}")
                if seen["scheme"] != expected:
                    found.append(f"{where} is shown as {seen['scheme']}")
                places[page] = set(seen["places"])
                links |= {(page, link) for link in seen["links"]}
                if pictures is not None and page in PICTURED:
                    browser.screenshot(pictures / f"{page[:-5]}-{screen}-{scheme}.png")
    for page, link in sorted(links):
        address, place = urldefrag(link)
        if address.startswith(home):
            target = unquote(address.removeprefix(home).lstrip("/")) or "index.html"
            if not (site / target).is_file():
                found.append(f"{page} links to {target}, which is not there")
            elif place and target in places and unquote(place) not in places[target] | {"__top"}:
                found.append(f"{page} links to {target}#{place}, a place that is not there")
    show(browser, f"{home}/index.html")
    browser.click(".md-search__input")
    browser.type(SEARCHED)
    while not browser.run('document.querySelectorAll(".md-search-result__item").length'):
        if time.monotonic() > browser.deadline:
            found.append(f"the search does not find {SEARCHED!r}")
            break
        time.sleep(0.2)
    found += sorted(
        {error for error in browser.errors if not error.startswith(f"asked for {home}")}
    )
    return found


def main() -> int:
    """Open every page; the exit status says whether all is well."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("site", type=Path)
    parser.add_argument("--pictures", type=Path, help="a folder for pictures of the first pages")
    given = parser.parse_args()
    chromium = load_browser()
    if chromium.find() is None:
        sys.exit(
            f"no Chromium is here (looked for {', '.join(chromium.NAMES)}): no page was opened"
        )
    if not (given.site / "index.html").is_file():
        sys.exit(f"{given.site} has no index.html: `nox -s docs` builds the pages")
    if given.pictures is not None:
        given.pictures.mkdir(parents=True, exist_ok=True)
    handler = functools.partial(Quiet, directory=str(given.site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        home = f"http://127.0.0.1:{server.server_address[1]}"
        with tempfile.TemporaryDirectory() as profile, chromium.Browser(profile, 900) as browser:
            found = faults(browser, given.site, home, given.pictures)
        server.shutdown()
    print(*found, sep="\n")
    print(f"{len(list(given.site.rglob('*.html')))} pages, {len(found)} faults")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
