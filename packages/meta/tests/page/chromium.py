"""Drives a headless Chromium over its debugging pipe: pages are opened, clicked and pictured.

The protocol is JSON with a zero byte after each message, on file descriptors 3 (to the browser) and
4 (from it).
"""

import base64
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def find():
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    def __init__(self, folder, seconds=60.0):
        self.deadline = time.monotonic() + seconds
        self.number = 0
        self.pending = b""
        self.errors = []
        into, self.writes = os.pipe()
        self.reads, out = os.pipe()
        command = [
            find(), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            "--remote-debugging-pipe", "--window-size=1400,1000", f"--user-data-dir={folder}",
            "--no-first-run", "--disable-background-networking", "about:blank",
        ]  # fmt: skip

        def pipes():
            one, two = os.dup(into), os.dup(out)
            os.dup2(one, 3)
            os.dup2(two, 4)

        self.process = subprocess.Popen(
            command, preexec_fn=pipes, close_fds=False,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(into)
        os.close(out)
        target = self.send("Target.createTarget", {"url": "about:blank"})["targetId"]
        attached = self.send("Target.attachToTarget", {"targetId": target, "flatten": True})
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network"):
            self.page(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.process.terminate()
        self.process.wait(10)
        os.close(self.writes)
        os.close(self.reads)

    def page(self, method, parameters=None):
        return self.send(method, parameters, self.session)

    def send(self, method, parameters=None, session=None):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters or {}}
        if session:
            message["sessionId"] = session
        os.write(self.writes, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive()
            if answer.get("id") == self.number:
                assert "error" not in answer, (method, answer)
                return answer["result"]
            self.note(answer)

    def receive(self):
        while b"\0" not in self.pending:
            left = self.deadline - time.monotonic()
            ready, _, _ = select.select([self.reads], [], [], max(left, 0))
            assert ready, "the browser does not answer"
            piece = os.read(self.reads, 1 << 16)
            assert piece, "the browser has ended"
            self.pending += piece
        message, _, self.pending = self.pending.partition(b"\0")
        return json.loads(message)

    def note(self, event):
        """Keep what should not happen: errors of the script, and requests of anything but files."""
        method, parameters = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.errors.append(parameters["exceptionDetails"]["text"])
        if method == "Network.requestWillBeSent":
            url = parameters["request"]["url"]
            if not url.startswith(("file:", "data:", "about:")):
                self.errors.append(f"asked for {url}")

    def open(self, path):
        self.page("Page.navigate", {"url": Path(path).resolve().as_uri()})
        while self.run("document.body && document.body.dataset.ready || ''") != "yes":
            assert time.monotonic() < self.deadline, "the page's script did not finish"
            time.sleep(0.05)

    def run(self, script):
        given = {"expression": script, "returnByValue": True, "awaitPromise": True}
        answer = self.page("Runtime.evaluate", given)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def click(self, selector):
        """A real click, with the mouse, in the middle of the first element of a selector."""
        place = self.run(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            "e.scrollIntoView({block: 'center'}); const b = e.getBoundingClientRect();"
            "return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.page(
                "Input.dispatchMouseEvent",
                {"type": kind, "x": place[0], "y": place[1], "button": "left", "clickCount": 1},
            )

    def type(self, text):
        self.page("Input.insertText", {"text": text})

    def screenshot(self, path):
        picture = self.page("Page.captureScreenshot", {"format": "png"})["data"]
        Path(path).write_bytes(base64.b64decode(picture))
