"""A report as a badge: a static SVG for a README, which asks no service for anything.

It says "conformant" for a whole run in which everything held, and for nothing else; an emulated backend is said.
"""

from __future__ import annotations

from html import escape

from muniment.conformance.report import Report

_LABEL = "muniment"
_GREEN, _RED, _GREY = "#2e7d32", "#b3261e", "#5f6368"
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
    message, colour = _message(report)
    label_width, message_width = _width(_LABEL), _width(message)
    version = report.versions.get(report.plugin, "")
    title = f"{report.plugin} {version}: {message}, contract {report.versions.get('contract', '')}"
    return _SVG.format(
        title=escape(title),
        width=label_width + message_width,
        inner=label_width - 3,
        colour=colour,
        label=_LABEL,
        message=escape(message),
        label_at=label_width / 2,
        message_at=label_width + message_width / 2,
        label_length=label_width - _MARGIN,
        message_length=message_width - _MARGIN,
    )


def _message(report: Report) -> tuple[str, str]:
    backend = "" if report.real else " (emulated)"
    if report.conformant:
        return f"conformant{backend}", _GREEN
    if report.holds and report.results:
        return f"judged in part{backend}", _GREY
    return f"not conformant{backend}", _RED


def _width(text: str) -> int:
    return len(text) * _CHARACTER + _MARGIN
