"""Chromium without a window, driven over its pipe: as little of the DevTools protocol as the tests need."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome", "headless_shell")
LIMIT = 120.0  # seconds: of a busy machine
#: What an expression meets in a page that goes away, or is not there yet.
BETWEEN_PAGES = (
    "context was destroyed", "Cannot find context", "Cannot find default execution context",
    "navigated or closed", "Promise was collected", "No frame",
)  # fmt: skip


def find() -> str | None:
    """The path of a Chromium: EVENTPROF_CHROMIUM names one."""
    given = os.environ.get("EVENTPROF_CHROMIUM")
    return given or next(filter(None, map(shutil.which, NAMES)), None)


class PageGone(RuntimeError):
    """The page was being left while it was asked."""


class Browser:
    """One browser with one page. What its console says is kept."""

    def __init__(self, width: int = 1400, height: int = 900, attempts: int = 3) -> None:
        self.console: list[str] = []
        self._number = 0
        self._buffer = b""
        self._folder = tempfile.mkdtemp(prefix="eventprof-browser-")
        for attempt in range(attempts):
            try:
                self._start(width, height)
                return
            except (OSError, TimeoutError, EOFError):
                self._end()
                if attempt == attempts - 1:
                    raise

    def _start(self, width: int, height: int) -> None:
        down, self._out = os.pipe()
        self._in, up = os.pipe()
        # The browser reads from 3 and writes to 4: whatever these are here must not be in the way.
        high = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, 20) for descriptor in (down, up)]
        os.close(down)
        os.close(up)
        down, up = high
        path = find()
        assert path is not None
        command = [
            path, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
            "--disable-extensions", "--disable-background-networking", "--mute-audio", "--hide-scrollbars",
            "--force-device-scale-factor=1", f"--window-size={width},{height}",
            f"--user-data-dir={self._folder}/{self._number}", "--remote-debugging-pipe", "about:blank",
        ]  # fmt: skip
        shell = f'exec "$@" 3<&{down} 4>&{up} {down}<&- {up}>&-'
        self._process = subprocess.Popen(
            ["bash", "-c", shell, "bash", *command],
            pass_fds=(down, up),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, "HOME": self._folder},
        )
        os.close(down)
        os.close(up)
        self._session: str | None = None
        self._buffer = b""
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next((each for each in targets if each["type"] == "page"), None)
        target = (
            page["targetId"]
            if page
            else self.call("Target.createTarget", url="about:blank")["targetId"]
        )
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        self.size(width, height)

    def _end(self) -> None:
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()
        os.close(self._in)
        os.close(self._out)

    def close(self) -> None:
        self._end()
        shutil.rmtree(self._folder, ignore_errors=True)

    # ---- The protocol ------------------------------------------------------------------------

    def _read(self, until: float) -> dict:
        while b"\0" not in self._buffer:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self._in], [], [], left)[0]:
                raise TimeoutError("the browser does not answer")
            more = os.read(self._in, 1 << 20)
            if not more:
                raise EOFError("the browser has ended")
            self._buffer += more
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def call(self, method: str, **parameters):
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + LIMIT
        while True:
            answer = self._read(until)
            if answer.get("id") == self._number:
                if "error" in answer:
                    error = f"{method}: {answer['error']}"
                    gone = any(words in error for words in BETWEEN_PAGES)
                    raise PageGone(error) if gone else RuntimeError(error)
                return answer["result"]
            self._note(answer)

    def _note(self, event: dict) -> None:
        parameters = event.get("params", {})
        if event.get("method") == "Runtime.consoleAPICalled":
            self.console.append(
                " ".join(
                    str(each.get("value", each.get("description"))) for each in parameters["args"]
                )
            )
        elif event.get("method") == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.console.append(
                str(details.get("exception", {}).get("description", details["text"]))
            )
        elif event.get("method") == "Log.entryAdded":
            self.console.append(
                f"{parameters['entry']['text']} {parameters['entry'].get('url', '')}"
            )

    # ---- The page ----------------------------------------------------------------------------

    def run(self, expression: str):
        """The value of an expression in the page; of a promise what it becomes."""
        result = self.call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in result:
            details = result["exceptionDetails"]
            raise RuntimeError(
                f"{expression}: {details.get('exception', {}).get('description', details['text'])}"
            )
        return result["result"].get("value")

    def wait(self, expression: str, limit: float = LIMIT, quiet: bool = False):
        """Until an expression is true, in this page or in the one that comes; `quiet`: or the console says something."""
        until = time.monotonic() + limit
        while True:
            try:
                value = self.run(expression)
                if value:
                    return value
                self.run("new Promise((done) => setTimeout(done, 20))")
            except PageGone:
                time.sleep(0.02)
            if quiet and self.console:
                raise RuntimeError(f"the console, before {expression}: {self.console}")
            if time.monotonic() > until:
                raise TimeoutError(f"never true: {expression}; the console: {self.console}")

    def open(self, path: Path, fragment: str = "") -> None:
        """A page of eventprof, decoded."""
        self.go("about:blank")
        self.console.clear()
        self.go(path.resolve().as_uri() + fragment)
        self.wait("window.eventprofPage !== undefined && eventprofPage.app.finished", quiet=True)
        self.settle()

    def go(self, address: str) -> None:
        """Another page, read to its end."""
        answer = self.call("Page.navigate", url=address)
        assert "errorText" not in answer, (address, answer["errorText"])
        self.wait(
            f"document.readyState === 'complete' && location.href.split('#')[0] === {json.dumps(address.partition('#')[0])}"
        )

    def size(self, width: int, height: int, scale: float = 1) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=False,
        )

    def mouse(self, kind: str, x: float, y: float, **more) -> None:
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, x: float, y: float, count: int = 1, modifiers: int = 0) -> None:
        self.mouse("mouseMoved", x, y)
        for number in range(1, count + 1):
            for kind in ("mousePressed", "mouseReleased"):
                self.mouse(
                    kind, x, y, button="left", buttons=1, clickCount=number, modifiers=modifiers
                )
        self.settle()

    def drag(self, x0: float, y0: float, x1: float, y1: float, modifiers: int = 0) -> None:
        self.mouse("mouseMoved", x0, y0)
        self.mouse(
            "mousePressed", x0, y0, button="left", buttons=1, clickCount=1, modifiers=modifiers
        )
        for part in (0.3, 0.7, 1):
            self.mouse(
                "mouseMoved",
                x0 + (x1 - x0) * part,
                y0 + (y1 - y0) * part,
                button="left",
                buttons=1,
                modifiers=modifiers,
            )
        self.mouse(
            "mouseReleased", x1, y1, button="left", buttons=1, clickCount=1, modifiers=modifiers
        )
        self.settle()

    def key(self, key: str, modifiers: int = 0) -> None:
        text = {"text": key} if len(key) == 1 else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, modifiers=modifiers, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, modifiers=modifiers)
        self.settle()

    def type(self, text: str) -> None:
        self.call("Input.insertText", text=text)
        self.settle()

    def settle(self) -> None:
        """What was changed is drawn, in boxes as large as they are now."""
        self.run("eventprofPage.flush()")
        self.wait(
            "(({app: {timeline: {raster}}}) => { const box = document.querySelector('#timeline-box');"
            " if (raster.wide === box.clientWidth && raster.high === box.clientHeight) return true;"
            " eventprofPage.flush(); return false; })(eventprofPage)"
        )

    def box(self, selector: str) -> dict:
        return self.run(
            f"(({{x, y, width, height}}) => ({{x, y, width, height}}))(document.querySelector({json.dumps(selector)}).getBoundingClientRect())"
        )

    def picture(self, path: Path) -> None:
        path.write_bytes(
            base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])
        )
