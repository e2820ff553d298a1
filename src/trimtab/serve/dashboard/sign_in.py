"""The page that asks for a token; it needs no script."""

from html import escape
from urllib.parse import quote

_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 26rem; margin: 12vh auto; padding: 0 1rem; }
label { display: block; margin: 1rem 0 .25rem; } input, button { font: inherit; padding: .5rem .75rem; }
input { width: 100%; box-sizing: border-box; } button { margin-top: 1rem; }
[role=alert] { border-left: 4px solid #c62828; padding-left: .75rem; }
"""


def form(then: str, told: str = "") -> bytes:
    """The form; afterwards it goes to the page `then`. `told` is what went wrong before."""
    said = f"<p role=alert>{escape(told)}</p>" if told else ""
    action = f"/sign-in?then={quote(then, safe='')}"
    return _whole(
        f"<h1>Trimtab</h1>{said}"
        f'<form method="post" action="{escape(action)}">'
        '<label for="token">Token</label>'
        '<input id="token" name="token" type="password" autocomplete="off" required autofocus>'
        '<button type="submit">Sign in</button></form>'
        "<p>An admin makes tokens with <code>trimtab access make</code>.</p>"
    )


def message(sentence: str) -> bytes:
    """One sentence."""
    return _whole(f"<h1>Trimtab</h1><p>{escape(sentence)}</p>")


def _whole(body: str) -> bytes:
    head = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Sign in - Trimtab</title><style>{_STYLE}</style></head>"
    )
    return f"{head}<body><main>{body}</main></body></html>".encode()
