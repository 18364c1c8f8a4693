"""Finding a Chromium: the named one, else one on the path, else the fetched one, else a reason."""

import scripts.browser as chromium


def test_a_browser_that_is_named_comes_first(tmp_path, monkeypatch):
    """MILKRUN_CHROMIUM before the path, the path in the order of the names before the project's own."""
    monkeypatch.setattr(chromium, "FOLDER", tmp_path / ".browser")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("MILKRUN_CHROMIUM", raising=False)
    assert chromium.find() is None
    for place in (tmp_path / ".browser" / "chromium", tmp_path / "chrome", tmp_path / "chromium-browser"):
        place.parent.mkdir(exist_ok=True)
        place.write_text("#!/bin/sh\n")
        place.chmod(0o755)
        assert chromium.find() == str(place)
    monkeypatch.setenv("MILKRUN_CHROMIUM", "/opt/mine")
    assert chromium.find() == "/opt/mine"


def test_without_any_the_reason_is_left(tmp_path, monkeypatch, capsys):
    """Neither npm nor apt-get: both reasons in `.browser/reason`, which goes when a browser is found."""
    monkeypatch.setattr(chromium, "FOLDER", tmp_path / ".browser")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("MILKRUN_CHROMIUM", raising=False)
    monkeypatch.setattr("sys.argv", ["browser.py"])
    chromium.main()
    said = (tmp_path / ".browser" / "reason").read_text()
    assert "npm is not installed" in said or "x86-64" in said
    assert "apt-get needs" in said and "will skip" in capsys.readouterr().out
    monkeypatch.setenv("MILKRUN_CHROMIUM", "/opt/mine")
    chromium.main()
    assert not (tmp_path / ".browser" / "reason").exists() and "/opt/mine" in capsys.readouterr().out
