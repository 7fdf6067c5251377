"""A report as a badge: a static SVG for a README, which asks no service for anything.

It says "conformant" for a whole run in which everything held, and for nothing else; an emulated backend is said.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from muniment.conformance.report import Report, Verdict

_LABEL = "muniment"
_COLOURS: Mapping[Verdict, str] = {
    Verdict.CONFORMANT: "#2e7d32",
    Verdict.IN_PART: "#5f6368",
    Verdict.NOT_CONFORMANT: "#b3261e",
}
_CHARACTER, _MARGIN = 7, 12
_SVG = """<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" role="img" aria-label="{title}">
<title>{title}</title>
<rect width="{width}" height="20" rx="3" fill="{colour}"/>
<path d="M3 0h{inner}v20H3a3 3 0 0 1-3-3V3a3 3 0 0 1 3-3z" fill="#333"/>
<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11" text-anchor="middle">
<text x="{label_at}" y="14" textLength="{label_length}">{label}</text>
<text x="{message_at}" y="14" textLength="{message_length}">{message}</text>
</g>
</svg>
"""


def badge(report: Report) -> str:
    """The report as the text of an SVG image, 20 pixels high."""
    message = report.verdict if report.real else f"{report.verdict} (emulated)"
    label_width, message_width = _width(_LABEL), _width(message)
    version = report.versions.get(report.plugin, "")
    title = f"{report.plugin} {version}: {message}, contract {report.versions.get('contract', '')}"
    return _SVG.format(
        title=escape(title),
        width=label_width + message_width,
        inner=label_width - 3,
        colour=_COLOURS[report.verdict],
        label=_LABEL,
        message=escape(message),
        label_at=label_width / 2,
        message_at=label_width + message_width / 2,
        label_length=label_width - _MARGIN,
        message_length=message_width - _MARGIN,
    )


def _width(text: str) -> int:
    return len(text) * _CHARACTER + _MARGIN
