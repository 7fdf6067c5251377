"""Origins as settings name them: what a browser sends, or what to write instead."""

from __future__ import annotations

import pytest

from muniment.serving.origins import origin


@pytest.mark.parametrize(
    ("written", "sent"),
    [
        ("https://app.example", "https://app.example"),
        ("https://App.Example", "https://app.example"),
        ("HTTPS://app.example/", "https://app.example"),
        ("https://app.example:443", "https://app.example"),
        ("http://app.example:80", "http://app.example"),
        ("http://app.example:443", "http://app.example:443"),
        ("http://localhost:5173", "http://localhost:5173"),
        ("http://[::1]:5173", "http://[::1]:5173"),
        ("https://xn--bcher-kva.example", "https://xn--bcher-kva.example"),
        ("chrome-extension://abcdefghijklmnop", "chrome-extension://abcdefghijklmnop"),
        ("tauri://localhost", "tauri://localhost"),
    ],
)
def test_what_a_browser_sends(written: str, sent: str) -> None:
    """What is unambiguous is spelled as it is sent."""
    assert origin(written) == sent


@pytest.mark.parametrize(
    ("written", "instead"),
    [
        ("*", "write each one, such as https://app.example"),
        ("https://*.example", "write each one"),
        ("null", "write an origin"),
        ("", "write https://app.example"),
        ("app.example", "write https://app.example"),
        ("App.example/", "write https://app.example"),
        ("app.example:8443/x", "write https://app.example:8443"),
        ("//app.example", "write https://app.example"),
        ("https://App.example/app", "write https://app.example"),
        ("https://app.example:443/app/", "write https://app.example"),
        ("https://app.example?x", "write https://app.example"),
        ("https://app.example#", "write https://app.example"),
        ("https://ada:hunter2@app.example:8443", "write https://app.example:8443"),
        ("https://bücher.example", "write https://xn--bcher-kva.example"),
        ("https://app.example:port", "write one such as https://app.example"),
        ("https://", "write one such as https://app.example"),
        ("https://app example", "write one such as https://app.example"),
        ("file:///app.html", "write one such as https://app.example"),
    ],
)
def test_what_no_browser_sends(written: str, instead: str) -> None:
    """It could never match, so it is refused with what to write; nothing secret is repeated."""
    with pytest.raises(ValueError, match="write ") as refusal:
        origin(written)
    assert str(refusal.value).endswith(instead) or f"{instead}," in str(refusal.value)
    assert "hunter2" not in str(refusal.value)
