"""Pages in headless Chromium, for tests marked `browser`: the fixture `browser` opens them, with a real mouse and keyboard.

The browser is told what to do through the DevTools protocol over two pipes, so that nothing but Chromium has to be installed.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-extensions",
           "--disable-background-networking", "--no-first-run", "--hide-scrollbars", "--force-device-scale-factor=1",
           "--remote-debugging-pipe")
TIMEOUT_S = 60.0
_PIPES = ("import os,sys;a,b=int(sys.argv[1]),int(sys.argv[2]);a,b=[__import__('fcntl').fcntl(f,0,10) for f in (a,b)];"
          "os.dup2(a,3);os.dup2(b,4);os.execv(sys.argv[3],sys.argv[3:])")
"""Chromium reads file 3 and writes file 4."""
KEYS = {"Enter": 13, "Tab": 9, "Escape": 27, "ArrowDown": 40, "ArrowUp": 38, "ArrowLeft": 37, "ArrowRight": 39, "Home": 36, "End": 35}
_SCHEMES = {True: "dark", False: "light"}


def executable() -> str | None:
    """The path of Chromium, None without it."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Browser:
    """A running Chromium. It visits nothing by itself, and its profile is a temporary folder."""

    def __init__(self) -> None:
        program = executable()
        if program is None:
            raise FileNotFoundError(f"the tests marked `browser` need Chromium: none of {', '.join(NAMES)} is on PATH "
                                    "(Debian: apt-get install chromium)")
        self._profile = tempfile.mkdtemp(prefix="ptxkit-browser-")
        (read, self._write), (self._read, write) = os.pipe(), os.pipe()
        command = [sys.executable, "-S", "-c", _PIPES, str(read), str(write), program, *OPTIONS, f"--user-data-dir={self._profile}"]
        self._process = subprocess.Popen(command, pass_fds=(read, write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                         start_new_session=True)
        os.close(read)
        os.close(write)
        self._number, self._rest = 0, b""
        self._events: dict[str, list[dict[str, Any]]] = {}

    def open(self, address: str | Path, width: int = 1280, height: int = 800, *, dark: bool = False) -> Page:
        """A page in a tab of its own, once it has loaded. A path is opened as a file."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, target, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(f"{domain}.enable")
        page.resize(width, height)
        page.dark(dark)
        page.go(address.resolve().as_uri() if isinstance(address, Path) else address)
        return page

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._send({"id": 0, "method": "Browser.close"})
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._write)
        os.close(self._read)
        shutil.rmtree(self._profile, ignore_errors=True)

    def call(self, method: str, session: str = "", **parameters: Any) -> Any:
        """The result of a method of the DevTools protocol."""
        self._number += 1
        number = self._number
        self._send({"id": number, "method": method, "params": parameters, **({"sessionId": session} if session else {})})
        while True:
            message = self._receive(method)
            if message.get("id") == number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']['message']}")
                return message["result"]

    def wait(self, event: str, session: str) -> None:
        """Returns once the session has had this event; past ones count."""
        while not any(each["method"] == event for each in self.events(session)):
            self._receive(event)

    def events(self, session: str) -> list[dict[str, Any]]:
        return self._events.setdefault(session, [])

    def _send(self, message: dict[str, Any]) -> None:
        left = json.dumps(message).encode() + b"\0"
        while left:
            left = left[os.write(self._write, left):]

    def _receive(self, what: str) -> dict[str, Any]:
        end = time.monotonic() + TIMEOUT_S
        while b"\0" not in self._rest:
            if not select.select([self._read], [], [], max(end - time.monotonic(), 0))[0]:
                raise TimeoutError(f"Chromium has not answered {what} for {TIMEOUT_S:.0f} s")
            data = os.read(self._read, 1 << 20)
            if not data:
                raise RuntimeError(f"Chromium ended during {what}, with status {self._process.wait()}")
            self._rest += data
        head, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(head)
        if "method" in message and "sessionId" in message:
            self.events(message["sessionId"]).append(message)
        return message


class Page:
    """A tab. Selectors are those of CSS; of several elements the first is meant."""

    def __init__(self, browser: Browser, target: str, session: str) -> None:
        self._browser, self._target, self._session = browser, target, session

    def call(self, method: str, **parameters: Any) -> Any:
        return self._browser.call(method, self._session, **parameters)

    def go(self, url: str) -> None:
        self._browser.events(self._session).clear()
        said = self.call("Page.navigate", url=url)
        if said.get("errorText"):
            raise RuntimeError(f"{url}: {said['errorText']}")
        self._browser.wait("Page.loadEventFired", self._session)

    def close(self) -> None:
        self._browser.call("Target.closeTarget", targetId=self._target)

    def resize(self, width: int, height: int) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def dark(self, wanted: bool) -> None:
        """What the page is told that the user prefers."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": _SCHEMES[wanted]}])

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression, as JSON has it; a promise is waited for."""
        said = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in said:
            raise AssertionError(_exception(said["exceptionDetails"]))
        return said["result"].get("value")

    def errors(self) -> list[str]:
        """What the console has as errors and warnings so far, exceptions that nothing caught, and addresses that were not loaded."""
        self.evaluate("new Promise(done=>requestAnimationFrame(()=>setTimeout(done)))")
        found = []
        for event in self._browser.events(self._session):
            about = event["params"]
            match event["method"]:
                case "Runtime.exceptionThrown":
                    found.append(_exception(about["exceptionDetails"]))
                case "Runtime.consoleAPICalled" if about["type"] in ("error", "warning", "assert"):
                    found.append(" ".join(str(each.get("value", each.get("description"))) for each in about["args"]))
                case "Log.entryAdded" if about["entry"]["level"] in ("error", "warning"):
                    found.append(f"{about['entry']['text']} {about['entry'].get('url', '')}".rstrip())
                case "Network.loadingFailed":
                    found.append(f"not loaded: {about['errorText']}")
        return found

    def requests(self) -> list[str]:
        """The addresses that the page asked for, its own first."""
        return [event["params"]["request"]["url"] for event in self._browser.events(self._session)
                if event["method"] == "Network.requestWillBeSent"]

    def box(self, selector: str) -> dict[str, float]:
        """left, top, right, bottom, width and height on the screen, in pixels."""
        found = self.evaluate(f"(e=>e&&e.getBoundingClientRect().toJSON())(document.querySelector({json.dumps(selector)}))")
        assert found, f"nothing on the page is {selector}"
        return dict(found)

    def hover(self, selector: str) -> None:
        box = self._shown(selector)
        self._mouse("mouseMoved", box["left"] + min(box["width"] / 2, 200), box["top"] + box["height"] / 2)

    def click(self, selector: str) -> None:
        box = self._shown(selector)
        at = box["left"] + min(box["width"] / 2, 200), box["top"] + box["height"] / 2
        self._mouse("mouseMoved", *at)
        for kind in ("mousePressed", "mouseReleased"):
            self._mouse(kind, *at, button="left", clickCount=1)

    def drag(self, selector: str, right: float) -> None:
        """Takes the element at its middle and lets it go `right` pixels from there."""
        box = self._shown(selector)
        x, y = box["left"] + box["width"] / 2, box["top"] + box["height"] / 2
        self._mouse("mouseMoved", x, y)
        self._mouse("mousePressed", x, y, button="left", buttons=1, clickCount=1)
        for part in (0.5, 1):
            self._mouse("mouseMoved", x + part * right, y, button="left", buttons=1)
        self._mouse("mouseReleased", x + right, y, button="left", clickCount=1)

    def press(self, key: str) -> None:
        """A key by its name ("Enter", "ArrowDown", "Tab"), or a character."""
        about: dict[str, Any] = {"key": key, "windowsVirtualKeyCode": KEYS.get(key, ord(key[0]))}
        if key not in KEYS:
            about["text"] = key
        elif key == "Enter":
            about["text"] = "\r"
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, **about)

    def type(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    def screenshot(self, path: Path) -> Path:
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))
        return path

    def _shown(self, selector: str) -> dict[str, float]:
        """The box, once it has been scrolled to."""
        self.box(selector)
        self.evaluate(f"document.querySelector({json.dumps(selector)}).scrollIntoView({{block:'nearest',inline:'nearest'}})")
        return self.box(selector)

    def _mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)


def _exception(details: dict[str, Any]) -> str:
    return str(details.get("exception", {}).get("description") or details["text"])
