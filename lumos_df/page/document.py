"""The page as one text: data, styles and scripts in one file that fetches nothing."""

import base64
import hashlib
import html
import json
from pathlib import Path
from typing import Any, Final

_WEB: Final = Path(__file__).parent / "web"

_SCRIPTS: Final = (
    "format",
    "elements",
    "canvas",
    "table",
    "columns",
    "heat",
    "lines",
    "scatter",
    "timeline",
    "advice",
    "sections",
    "jobs",
    "main",
)
"""Each after those that it leans on."""


def render(data: dict[str, Any]) -> str:
    """Return the HTML of a page that shows `data`, which is embedded once, as JSON.

    Texts of traces are never markup: JSON cannot end its element, scripts put it into text nodes only, and the
    page's policy runs no script but ours. Raises `ValueError` for a number that JSON cannot say.
    """
    style = (_WEB / "page.css").read_text("utf-8")
    parts = "\n".join((_WEB / f"{name}.js").read_text("utf-8") for name in _SCRIPTS)
    script = f'"use strict";\n(() => {{\n{parts}\n}})();\n'
    policy = f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; img-src data:"
    fill = {
        "policy": html.escape(policy, quote=True),
        "title": html.escape(f"lumos-df: {data['corpus']}"),
        "style": style,
        "data": embedded(data),
        "script": script,
    }
    page = (_WEB / "page.html").read_text("utf-8")
    head, *slots = page.split("{{")
    return head + "".join(fill[name] + rest for name, _, rest in (slot.partition("}}") for slot in slots))


def embedded(data: dict[str, Any]) -> str:
    """Return JSON that no HTML parser takes for anything but text."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text.encode("utf-8", "replace").decode("utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
