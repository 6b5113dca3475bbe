"""A page as a browser has drawn it, and as its file holds it."""

import base64
import json
import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from tests.page.devtools import DevTools


def data_of(page: Path) -> dict[str, Any]:
    """Return what a page embeds."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text("utf-8"), re.DOTALL)
    assert found
    data: dict[str, Any] = json.loads(found[1])
    return data


def job_of(page: Path, job: str) -> dict[str, Any]:
    """Return what a page embeds about one job."""
    (found,) = [part for part in data_of(page)["jobs"] if part["summary"]["job"] == job]
    there: dict[str, Any] = found
    return there


@dataclass
class Dom(HTMLParser):
    """What stands in a document: how many of each element, tables by name, marked values, texts."""

    elements: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    tables: dict[str, list[dict[str, str]]] = field(default_factory=dict)
    """Rows of each table: raw value by column; an empty text is null."""
    values: dict[str, str] = field(default_factory=dict)
    """Raw values of the mean step."""
    texts: list[str] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self._table = ""
        self._columns: list[str] = []
        self._in_command = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.elements.append((tag, given))
        if "data-table" in given:
            self._table, self._columns = given["data-table"], []
            self.tables[self._table] = []
        elif tag == "th":
            self._columns.append(given["data-column"])
        elif tag == "tr" and self._columns:
            self.tables[self._table].append({})
        elif tag == "td":
            row = self.tables[self._table][-1]
            row[self._columns[len(row)]] = given["data-v"]
        elif tag == "code":
            self._in_command = True
            self.commands.append("")
        elif "data-share" in given:
            self.values[given["data-share"]] = given["data-v"]

    def handle_endtag(self, tag: str) -> None:
        if tag == "code":
            self._in_command = False

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
        if self._in_command:
            self.commands[-1] += data

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.elements)

    @property
    def sections(self) -> list[str]:
        return [given["data-section"] for _, given in self.elements if "data-section" in given]


class Browser:
    """Chromium without a window, one page at a time."""

    def __init__(self, program: str, folder: Path) -> None:
        """Start it; `folder` is for its profile."""
        self._tools = DevTools(program, folder)

    def open(self, page: Path, *, width: int = 1280, dark: bool = False, numbers: bool = False) -> None:
        """Show a page in a window so wide, px, and 900 high, on a system in light or `dark`; `numbers` unfolds all.

        Messages on the console are a failure, here and in all that follows.
        """
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self._tools.ask("Emulation.setEmulatedMedia", features=scheme)
        self._tools.ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False
        )
        # A fragment that changes loads nothing.
        self._tools.ask("Page.navigate", url="about:blank")
        self._tools.wait_for("Page.loadEventFired")
        self._tools.ask("Page.navigate", url=page.resolve().as_uri() + ("#numbers" if numbers else ""))
        self._tools.wait_for("Page.loadEventFired")
        self.settle()

    def settle(self) -> None:
        """Wait until what changed is drawn: charts are drawn again in the frame after their size is known."""
        self.run("return new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)));")

    def run(self, script: str) -> Any:
        """Return what the body of a function gives on this page, once a promise of it is kept."""
        told = self._tools.ask(
            "Runtime.evaluate", expression=f"(() => {{ {script} }})()", awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in told, told["exceptionDetails"]
        assert self._complaints() == []
        return told["result"].get("value")

    def press(self, *keys: str) -> None:
        """Press keys, as a person does; each is named as `KeyboardEvent.key` names it."""
        for key in keys:
            code = {"Tab": 9, "Enter": 13, " ": 32}.get(key, 0)
            text = {"Enter": "\r", " ": " "}.get(key, "")
            known = {"key": key, "windowsVirtualKeyCode": code, "text": text}
            self._tools.ask("Input.dispatchKeyEvent", type="keyDown", **known)
            self._tools.ask("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def accessible(self) -> list[tuple[str, str]]:
        """Return the role and the name of all that a reader of the screen is told of, in order."""
        nodes = self._tools.ask("Accessibility.getFullAXTree")["nodes"]
        return [
            (node["role"]["value"], node.get("name", {}).get("value", "")) for node in nodes if not node.get("ignored")
        ]

    def picture(self, top: int, height: int) -> bytes:
        """Return a part of the page, from `top` px on, as PNG."""
        width = self.run("return document.documentElement.clientWidth;")
        clip = {"x": 0, "y": top, "width": width, "height": height, "scale": 1}
        shot = self._tools.ask("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)
        return base64.b64decode(shot["data"])

    def dom(self) -> Dom:
        """Return what is drawn."""
        dom = Dom()
        dom.feed(self.run("return document.documentElement.outerHTML;"))
        return dom

    def _complaints(self) -> list[dict[str, Any]]:
        """Take what was said on the console, and errors that nothing caught."""
        names = {"Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"}
        told, self._tools.events = self._tools.events, []
        return [event["params"] for event in told if event["method"] in names]

    def close(self) -> None:
        """End it."""
        self._tools.close()
