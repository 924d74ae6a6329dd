"""A headless Chromium, driven by its DevTools protocol over a pipe.

Messages are JSON ended by a zero byte. No package is needed for it, and no port is opened.
"""

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")

#: Nothing that a browser does of its own accord: no updates, no sync, no first-run pages.
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
    "--remote-debugging-pipe",
)

#: Becomes the browser, with the two ends of our pipes where it looks for them.
LAUNCH = "import os, sys; a = sys.argv[1:]; os.dup2(int(a[0]), 3); os.dup2(int(a[1]), 4); os.execv(a[2], a[2:])"

#: Seconds to wait for an answer or an event.
TIMEOUT = 60.0


def find():
    """Path of a Chromium: the one that `CHROMIUM` names, else the first one found; None where there is none."""
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One browser process with one page; a context manager.

    Parameters
    ----------
    profile : Path
        An empty folder for its files.
    """

    def __init__(self, profile: Path) -> None:
        self.events: list[dict] = []
        self._next, self._buffer, self._session = 0, b"", None
        ends = (*os.pipe(), *os.pipe())
        # Out of the way of 3 and 4, which the browser reads from and writes to.
        reads, self._to, self._from, writes = (fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends)
        for end in ends:
            os.close(end)
        command = [sys.executable, "-c", LAUNCH, str(reads), str(writes), find(), *FLAGS]
        self._process = subprocess.Popen(
            [*command, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(reads, writes),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(reads)
        os.close(writes)
        target = next(t for t in self.send("Target.getTargets")["targetInfos"] if t["type"] == "page")
        attached = self.send("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *_) -> None:
        self._process.terminate()
        self._process.wait(TIMEOUT)
        os.close(self._to)
        os.close(self._from)

    def send(self, method: str, **params):
        """Call a method and return its result."""
        self._next += 1
        message = {"id": self._next, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._next:
                assert "error" not in answer, f"{method}: {answer.get('error')}"
                return answer["result"]

    def _receive(self):
        deadline = time.monotonic() + TIMEOUT
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._from], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, "the browser does not answer"
            piece = os.read(self._from, 1 << 20)
            assert piece, "the browser has ended"
            self._buffer += piece
        text, _, self._buffer = self._buffer.partition(b"\0")
        message = json.loads(text)
        if "id" not in message:
            self.events.append(message)
        return message

    def open(self, url: str, width: int, height: int = 900, phone: bool = False) -> None:
        """Show a page in a window of so many CSS pixels, and wait until it has been loaded and drawn."""
        self.events.clear()
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        self.send("Page.navigate", url=url)
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self._receive()
        # Two frames: what the load handlers asked for has been laid out and painted.
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def run(self, expression: str):
        """The value of a JavaScript expression; a promise is waited for."""
        answer = self.send("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def complaints(self) -> list[str]:
        """Exceptions, console errors and warnings, and log entries of the page, the policy's refusals included."""
        found = []
        for event in self.events:
            what, params = event["method"], event["params"]
            if what == "Runtime.exceptionThrown":
                found.append(params["exceptionDetails"]["text"] + str(params["exceptionDetails"].get("exception")))
            elif what == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
                found.append(" ".join(str(arg.get("value", arg)) for arg in params["args"]))
            elif what == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
                found.append(params["entry"]["text"])
        return found

    def requests(self) -> list[str]:
        """Addresses that the page asked for, data in the page itself left out."""
        asked = [e["params"]["request"]["url"] for e in self.events if e["method"] == "Network.requestWillBeSent"]
        return [url for url in asked if not url.startswith(("data:", "blob:"))]

    def picture(self, path: Path) -> None:
        """Save the whole page as a PNG."""
        answer = self.send("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(answer["data"]))

    def paper(self) -> bytes:
        """The page as a PDF, on A4."""
        answer = self.send("Page.printToPDF", preferCSSPageSize=True, paperWidth=8.27, paperHeight=11.69)
        return base64.b64decode(answer["data"])
