"""What the README shows runs as it stands there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def _block(file: str, opening: str) -> str:
    found = re.search(re.escape(opening) + r"(.*?)(?:\n\n|```)", (ROOT / file).read_text("utf-8"), re.DOTALL)
    assert found
    return found[1]


def test_the_call_from_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    told = _block("docs/fewshot.md", "$ cat thumbnailer.yaml\n")
    Path("thumbnailer.yaml").write_text(told, encoding="utf-8")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (snippet,) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    exec(snippet, names := dict[str, object]())
    seconds, both, who, *parts = capsys.readouterr().out.splitlines()
    time, low, high = map(float, seconds.split())
    assert low < time < high
    assert "unit='$'" in both
    assert who.split()[0] in ("model", "rule")
    assert who.split()[-1] in ("512MB", "1024MB", "2048MB")
    assert sum(float(part.split()[-1]) for part in parts) == pytest.approx(time)
    assert names["answer"].application == "thumbnailer"  # type: ignore[attr-defined]
    assert [path.name for path in tmp_path.iterdir()] == ["thumbnailer.yaml"]
