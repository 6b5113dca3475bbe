"""A page as a browser has drawn it, and as its file holds it."""

import json
import re
import subprocess
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Final

from lumos_df.page.document import embedded

_SECONDS: Final = 120


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


@dataclass(frozen=True)
class Browser:
    """Chromium without a window."""

    program: str
    folder: Path
    """For its profile."""

    def dom(self, page: Path, *flags: str, numbers: bool = True) -> Dom:
        """Open a page, with all its numbers unfolded, and return what it drew; no message may be on the console."""
        done = subprocess.run(
            [
                self.program,
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--enable-logging=stderr",
                f"--user-data-dir={self.folder}",
                "--window-size=1300,900",
                "--virtual-time-budget=3000",
                "--dump-dom",
                *flags,
                page.resolve().as_uri() + ("#numbers" if numbers else ""),
            ],
            capture_output=True,
            text=True,
            check=True,
            timeout=_SECONDS,
        )
        assert [line for line in done.stderr.splitlines() if "CONSOLE" in line] == []
        dom = Dom()
        dom.feed(done.stdout)
        return dom

    def drive(self, page: Path, script: str, width: int = 1280) -> Any:
        """Open a page so wide, px, do what `script` says with its `document`, and return the value that it gives."""
        text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page.read_text("utf-8"))
        driver = f"""
            const frame = document.querySelector("iframe");
            // Charts are drawn again once the page knows whether it scrolls.
            frame.onload = () => setTimeout(() => {{
              const result = ((window, document) => {{ {script} }})(frame.contentWindow, frame.contentDocument);
              document.documentElement.dataset.result = JSON.stringify(result);
            }}, 200);
            frame.srcdoc = {embedded({"page": text})}.page;
        """
        driven = self.folder / "driven.html"
        driven.write_text(
            f'<!DOCTYPE html><iframe style="width:{width}px;height:2000px;border:0"></iframe><script>{driver}</script>'
        )
        (result,) = [given["data-result"] for _, given in self.dom(driven).elements if "data-result" in given]
        return json.loads(result)
