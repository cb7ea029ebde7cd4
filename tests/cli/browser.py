"""A headless Chromium, driven over a pipe: what a page looks like and does, without a library for it."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.backends import cannot_be_had

PATIENCE = 60.0

PLACE = """
import os, sys
for found, wanted in zip(map(int, sys.argv[1:3]), (3, 4)):
    os.dup2(found, wanted)
os.execv(sys.argv[3], sys.argv[3:])
"""


class Browser:
    """One page in one browser; ``events`` collects what it did."""

    def __init__(self, to: int, back: int) -> None:
        self._to = to
        self._back = back
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []

    def open(self) -> None:
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def visit(
        self, page: Path, *, width: int, height: int = 900, dark: bool = False, media: str = ""
    ) -> None:
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", media=media, features=[scheme])
        self.events.clear()
        self.ask("Page.navigate", url=page.resolve().as_uri())
        until = time.monotonic() + PATIENCE
        while not any(e["method"] == "Page.loadEventFired" for e in self.events):
            self._read(until)

    def value(self, expression: str) -> Any:
        answer = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def screenshot(self, *, top: int = 0, width: int, height: int) -> bytes:
        clip = {"x": 0, "y": top, "width": width, "height": height, "scale": 1}
        taken = self.ask("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        return base64.b64decode(taken["data"])

    def printed(self) -> bytes:
        return base64.b64decode(self.ask("Page.printToPDF", printBackground=False)["data"])

    def requests(self) -> list[str]:
        return [
            e["params"]["request"]["url"] for e in self.events if e["method"] == "Network.requestWillBeSent"
        ]

    def complaints(self) -> list[str]:
        """Everything the console, the log and the policy said."""
        kinds = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        return [json.dumps(e["params"]) for e in self.events if e["method"] in kinds]

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + PATIENCE
        while True:
            answer = self._read(until)
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result

    def _read(self, until: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._back], [], [], max(0.0, until - time.monotonic()))
            assert ready, f"the browser said nothing for {PATIENCE:.0f} s"
            read = os.read(self._back, 1 << 16)
            assert read, "the browser has gone"
            self._buffer += read
        line, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        if "method" in message:
            self.events.append(message)
        return message


@contextmanager
def browser(home: Path) -> Iterator[Browser]:
    """Start Chromium with a profile of its own; skip with the reason where there is none, fail in CI."""
    program = next(
        (p for name in ("chromium", "chromium-browser", "google-chrome") if (p := shutil.which(name))), ""
    )
    if not program:
        cannot_be_had("There is no Chromium on this machine (Debian's package is called chromium).")
    to_child, to = os.pipe()
    back, from_child = os.pipe()
    # Chromium wants the pipe as descriptors 3 and 4: a program in between puts it there.
    ours = [fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (to_child, from_child)]
    wrapper = [sys.executable, "-c", PLACE, *map(str, ours)]
    arguments = [
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        "--disable-component-update",
        "--no-first-run",
        "--hide-scrollbars",
        "--force-color-profile=srgb",
        f"--user-data-dir={home / 'profile'}",
        "--remote-debugging-pipe",
    ]
    with (home / "chromium.log").open("wb") as log:
        process = subprocess.Popen(
            [*wrapper, program, *arguments],
            env=os.environ | {"HOME": str(home)},
            pass_fds=ours,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    for fd in (to_child, from_child, *ours):
        os.close(fd)
    try:
        page = Browser(to, back)
        page.open()
        yield page
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        os.close(to)
        os.close(back)
