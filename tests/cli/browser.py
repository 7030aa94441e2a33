"""The report's page in a real browser: two widths, light and dark.

    python -m tests.cli.browser FOLDER      screenshots go to FOLDER; needs chromium

Shows the page of `tests.cli.sample_report`, which is hard to show, and measures in the browser:
nothing is wider than the page, every text has enough
contrast against what is behind it. The page itself is loaded as it is, and the browser must have
nothing to say about it: its policy forbids nothing that it needs. Ends with 1 if something is
wrong, with 2 where there is no browser.

Not part of CI, where there is no browser; `tests/cli/test_report.py` holds what can be held there.
"""

from __future__ import annotations

import html
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import orjson

from magic_committer.cli.report import page
from tests.cli.sample_report import data

WIDTHS = (1280, 390)
"""Pixels: a desk, a phone."""
SCHEMES = {"light": "1", "dark": "0"}
"""Blink's numbers for ``preferredColorScheme``."""
SECONDS_MAX = 60
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
SAID = ("CONSOLE", "Refused", "Content Security Policy", "violates")
"""What the browser's log says when a page did something wrong."""

MEASURE = """
<script>
const found = {overflow: document.documentElement.scrollWidth - innerWidth, wide: [],
  pale: [], dark: matchMedia("(prefers-color-scheme: dark)").matches,
  height: document.documentElement.scrollHeight, width: innerWidth, texts: 0};
const seen = e => e.getClientRects().length && !e.closest(".unseen, title, desc, style, script");
for (const e of document.querySelectorAll("body *")) {
  if (!seen(e) || e.closest(".scroll table")) continue;
  const box = e.getBoundingClientRect();
  if (box.right > innerWidth + 1 || box.left < -1) found.wide.push(e.outerHTML.slice(0, 120));
}
const parts = c => c.match(/[\\d.]+/g).map(Number);
const light = ([r, g, b]) => [r, g, b].map(v => (v /= 255) <= 0.04045 ? v / 12.92
  : ((v + 0.055) / 1.055) ** 2.4).reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
const behind = e => {
  for (; e; e = e.parentElement) {
    const c = parts(getComputedStyle(e).backgroundColor);
    if (c.length < 4 || c[3] === 1) return c;
  }
  return [255, 255, 255];
};
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const e = walker.currentNode.parentElement;
  if (!walker.currentNode.textContent.trim() || !seen(e)) continue;
  const style = getComputedStyle(e);
  const colour = parts(style.color);
  const [a, b] = [light(colour), light(behind(e))].sort((x, y) => y - x);
  found.texts++;
  if ((a + 0.05) / (b + 0.05) < 4.5) found.pale.push(e.outerHTML.slice(0, 120));
}
parent.postMessage(JSON.stringify(found), "*");
</script>
"""

FRAME = """<!DOCTYPE html><meta name="color-scheme" content="light dark"><pre id="found"></pre>
<script>onmessage = e => document.getElementById("found").textContent = e.data</script>
<iframe src="{src}" style="width: {width}px; height: 2000px; border: 0"></iframe>
"""
"""A window of the browser has a least width; a frame has none."""
PATIENCE = "--virtual-time-budget=5000"
"""Milliseconds, of the page's clock, until the frame has told."""


def main() -> int:
    """Look at the page in each way; print a line for each and what is wrong."""
    browser = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if browser is None or len(sys.argv) != 2:
        print(f"usage: python -m tests.cli.browser FOLDER (needs one of {', '.join(BROWSERS)})")
        return 2
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    written = page(data())
    shown = (folder / "report.html").resolve()
    shown.write_text(written, encoding="utf-8")
    measured = (folder / "measured.html").resolve()
    without_policy = re.sub(r"<meta http-equiv=[^>]*>", "", written)
    measured.write_text(without_policy.replace("</body>", f"{MEASURE}</body>"), encoding="utf-8")
    framed = measured.with_name("framed.html")
    wrong = 0
    for width in WIDTHS:
        for scheme, number in SCHEMES.items():
            options = [f"--blink-settings=preferredColorScheme={number}"]
            frame = FRAME.format(src=measured.name, width=width)
            framed.write_text(frame, encoding="utf-8")
            found = _measure(browser, [*options, "--window-size=1600,2200", PATIENCE], framed)
            picture = (folder / f"report-{width}-{scheme}.png").resolve()
            size = f"--window-size={width},{found['height']}"
            _, log = _run(browser, [*options, size, f"--screenshot={picture}", shown.as_uri()])
            problems = _problems(found, width, scheme, log)
            wrong += len(problems)
            print(f"{width} px, {scheme}: {found['texts']} texts, {len(problems)} problems")
            print("".join(f"  {problem}\n" for problem in problems), end="")
    measured.unlink()
    framed.unlink()
    print(f"{wrong} problems; the screenshots are in {folder}")
    return 1 if wrong else 0


def _measure(browser: str, options: list[str], file: Path) -> dict[str, Any]:
    dom, _ = _run(browser, [*options, "--dump-dom", file.as_uri()])
    told = re.search(r'<pre id="found">(.*?)</pre>', dom, re.DOTALL)
    if told is None:
        raise RuntimeError(f"the browser measured nothing: {dom[-500:]}")
    found: dict[str, Any] = orjson.loads(html.unescape(told[1]))
    return found


def _problems(found: dict[str, Any], width: int, scheme: str, log: str) -> list[str]:
    problems = [
        f"the log says: {line}" for line in log.splitlines() if any(w in line for w in SAID)
    ]
    if (found["width"], found["dark"]) != (width, scheme == "dark"):
        problems.append(f"shown {found['width']} px wide, dark: {found['dark']}")
    if found["overflow"] > 0:
        problems.append(f"{found['overflow']} px wider than the window")
    problems += [f"sticks out: {one}" for one in found["wide"]]
    problems += [f"too pale: {one}" for one in found["pale"]]
    return problems


def _run(browser: str, options: list[str]) -> tuple[str, str]:
    """Run the browser once, with a profile of its own; its output and its log."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [
                browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                "--enable-logging=stderr", f"--user-data-dir={profile}", *options,
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )  # fmt: skip
        try:
            return process.communicate(timeout=SECONDS_MAX)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


if __name__ == "__main__":
    sys.exit(main())
