"""A real browser for tests of pages: Debian's chromium-headless-shell, driven by the DevTools protocol over two pipes,
and axe-core, which finds what people with a keyboard or a screen reader can't use.

    python -m tests.pages.chromium URL [PICTURE.png [dark]]     what a page's first paint took, and axe's violations
"""

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from cli import bootstrap
from tests.waiting import PATIENCE

PROGRAMS = ("chromium-headless-shell", "chromium")
AXE = "pytest_playwright_axe/resources/axe.min.js"
"""axe-core, in a package of which nothing is imported."""
_ARGUMENTS = (
    # As root, in a container, without a display, a GPU or a network.
    *"--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --hide-scrollbars --no-first-run".split(),
    *"--disable-background-networking --disable-component-update --disable-sync --no-proxy-server".split(),
    *"--disable-extensions --force-color-profile=srgb --remote-debugging-pipe".split(),
)
_CHANGED = "ERR_NETWORK_CHANGED"
"""A browser ends its requests when a network interface comes or goes, as with machines of other tests."""


def program() -> str | None:
    """The browser's path, or None where there is none."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


class Browser:
    """A browser's process."""

    def __init__(self, path: str, folder: Path) -> None:
        there, commands = os.pipe()
        answers, back = os.pipe()
        # The browser's ends are its descriptors 3 and 4, wherever they are here.
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (there, back)]
        line = f'exec "$@" 3<&{ends[0]} 4>&{ends[1]}'
        started = ["setpriv", "--pdeathsig", "KILL", "bash", "-c", line, "bash", path, *_ARGUMENTS]
        env = {**os.environ, "HOME": str(folder), "TZ": "UTC", "LANG": "C.UTF-8"}
        self._errors = (folder / "browser.log").open("wb")
        self._process = subprocess.Popen(
            [*started, f"--user-data-dir={folder}/profile", "about:blank"],
            pass_fds=ends, stdin=subprocess.DEVNULL, stdout=self._errors, stderr=self._errors, env=env,
        )  # fmt: skip
        for end in (there, back, *ends):
            os.close(end)
        self._commands, self._answers = commands, answers
        self._number, self._rest = 0, b""
        self.log = folder / "browser.log"
        self._listeners: dict[str, Callable[[dict[str, Any]], None]] = {}

    def call(self, method: str, session: str = "", **parameters: object) -> dict[str, Any]:
        """The result of a method of the DevTools protocol."""
        self._number += 1
        number = self._number
        request = {"id": number, "method": method, "params": parameters, **({"sessionId": session} if session else {})}
        os.write(self._commands, json.dumps(request).encode() + b"\0")
        answer: dict[str, Any] = {}

        def answered(message: dict[str, Any]) -> bool:
            answer.update(message if message.get("id") == number else {})
            return bool(answer)

        self.until(answered, what=method)
        assert "error" not in answer, f"{method}: {answer['error']}"
        return answer["result"]

    def until(self, wanted: Callable[[dict[str, Any]], bool], *, what: str) -> None:
        """Read messages until one is as wanted; events go to the pages that they are of."""
        end = time.monotonic() + PATIENCE
        for message in self._messages(end):
            if listener := self._listeners.get(message.get("sessionId", "")):
                listener(message)
            if wanted(message):
                return
        raise AssertionError(f"no answer of the browser to {what}:\n{self.log.read_text()}")

    def _messages(self, end: float) -> Iterator[dict[str, Any]]:
        while True:
            while b"\0" in self._rest:
                text, _, self._rest = self._rest.partition(b"\0")
                yield json.loads(text)
            left = end - time.monotonic()
            if left <= 0 or not select.select([self._answers], [], [], left)[0]:
                return
            data = os.read(self._answers, 1 << 20)
            if not data:
                return
            self._rest += data

    @contextmanager
    def page(self, url: str, *, dark: bool = False, width: int = 1280, height: int = 900) -> Iterator["Page"]:
        """A page of its own that has loaded; it has printed no error when it closes."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session)
        self._listeners[session] = page.heard
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable", session)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", session, features=[scheme])
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", session, **size)
        try:
            page.open(url)
            yield page
            assert page.errors == [], page.errors
        finally:
            del self._listeners[session]
            self.call("Target.closeTarget", targetId=target)

    def close(self) -> None:
        with suppress(OSError):
            os.close(self._commands)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._answers)
        self._errors.close()


class Page:
    """A page in the browser."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser, self._session = browser, session
        self.errors: list[str] = []
        """What it printed as an error: exceptions, refused resources, what its policy blocked."""
        self._loaded = False

    def heard(self, message: dict[str, Any]) -> None:
        """Take an event of this page."""
        given = message.get("params", {})
        if message.get("method") == "Runtime.exceptionThrown":
            details = given["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description") or details["text"])
        elif message.get("method") == "Log.entryAdded" and given["entry"]["level"] == "error":
            if _CHANGED in given["entry"]["text"]:
                return
            self.errors.append(f"{given['entry']['text']} {given['entry'].get('url', '')}")
        self._loaded = self._loaded or message.get("method") == "Page.loadEventFired"

    def call(self, method: str, **parameters: object) -> dict[str, Any]:
        """The result of a method of the DevTools protocol, for this page."""
        return self._browser.call(method, self._session, **parameters)

    def open(self, url: str) -> None:
        """Go to an address, and wait until it has loaded."""
        self._loaded = False
        found = self.call("Page.navigate", url=url)
        while _CHANGED in found.get("errorText", ""):
            self._loaded = False
            found = self.call("Page.navigate", url=url)
        assert "errorText" not in found, f"{url}: {found['errorText']}"
        if not self._loaded:
            self._browser.until(lambda _message: self._loaded, what=url)

    def evaluate(self, expression: str) -> Any:
        """The value of an expression of JavaScript, or of its promise."""
        found = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait(self, condition: str) -> None:
        """Wait until an expression is true."""
        end = time.monotonic() + PATIENCE
        while not self.evaluate(f"Boolean({condition})"):
            assert time.monotonic() < end, f"{condition} did not come true; errors: {self.errors}"
            time.sleep(0.05)

    def press(self, key: str, *, shift: bool = False) -> None:
        """Press a key: Tab, Enter, ArrowLeft ..."""
        codes = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32, "ArrowLeft": 37, "ArrowRight": 39, "End": 35, "Home": 36}
        given = {
            "key": key,
            "code": "Space" if key == " " else key,
            "windowsVirtualKeyCode": codes[key],
            "modifiers": 8 if shift else 0,
            **({"text": "\r"} if key == "Enter" else {}),
        }
        self.call("Input.dispatchKeyEvent", type="keyDown", **given)
        self.call("Input.dispatchKeyEvent", type="keyUp", **given)

    def first_paint(self) -> float:
        """Seconds from the request until something was drawn."""
        entry = "performance.getEntriesByName('first-contentful-paint')"
        self.wait(f"{entry}.length > 0")
        return self.evaluate(f"{entry}[0].startTime") / 1000

    def violations(self) -> list[str]:
        """Return what axe finds wrong, each with its element."""
        if not self.evaluate("typeof axe === 'object'"):
            self.evaluate((bootstrap.tool("pytest-playwright-axe") / AXE).read_text(encoding="utf-8") + ";0")
        found = self.evaluate("axe.run(document, {resultTypes: ['violations']}).then(done => done.violations)")
        return [
            f"{item['id']}: {node['html'][:200]}: {node['failureSummary']}" for item in found for node in item["nodes"]
        ]

    def names(self, role: str) -> list[str]:
        """Return the names that a screen reader gives to all elements of a role."""
        nodes = self.call("Accessibility.getFullAXTree")["nodes"]
        there = [node for node in nodes if not node["ignored"] and node.get("role", {}).get("value") == role]
        return [item.get("name", {}).get("value", "") for item in there]

    def picture(self, path: Path) -> None:
        """Write a picture of the whole page."""
        height = min(self.evaluate("document.documentElement.scrollHeight"), 16_000)
        width = self.evaluate("innerWidth")
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(shot["data"]))


@contextmanager
def running() -> Iterator[Browser]:
    """A browser, with a folder of its own that goes with it. Raises AssertionError: none is installed."""
    path = program()
    assert path, f"no browser here: install {PROGRAMS[0]}"
    with tempfile.TemporaryDirectory(prefix="hpc-browser-", ignore_cleanup_errors=True) as folder:
        browser = Browser(path, Path(folder))
        try:
            yield browser
        finally:
            browser.close()


if __name__ == "__main__":
    with running() as own, own.page(sys.argv[1], dark=sys.argv[3:] == ["dark"]) as shown:
        marks: dict[str, float] = {}
        for _ in range(50):  # what it asks for comes after its first paint
            found = shown.evaluate("performance.getEntriesByType('mark').map(one => [one.name, one.startTime / 1000])")
            if marks := dict(found):
                break
            time.sleep(0.1)
        if sys.argv[2:]:
            shown.picture(Path(sys.argv[2]))
        times = {"first_paint_seconds": shown.first_paint(), "marks_seconds": marks}
        print(json.dumps({**times, "violations": shown.violations()}, indent=2))
