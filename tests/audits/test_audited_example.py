"""The example that the guide audits prints what the guide says, and its open model gives people away."""

import json
import re
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tacit.cli.app import app

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guides" / "audit.md"


@pytest.mark.slow
def test_the_guide_shows_what_the_command_prints(tmp_path, monkeypatch):
    shutil.copy(ROOT / "examples" / "audit.toml", tmp_path)
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["audit", "audit.toml"])
    assert done.exit_code == 0, done.output
    shown = re.search(r"\$ tacit audit audit.toml\n(.*?)\nreport ", GUIDE.read_text(), re.DOTALL)
    assert done.stdout.strip() == shown.group(1)
    (place,) = (tmp_path / "runs").iterdir()
    found = json.loads((place / "audit.json").read_text())
    bare, kept = found["membership"]["settings"]
    assert max(each["named"] for each in bare["attacks"].values()) >= 20
    assert max(each["named"] for each in kept["attacks"].values()) <= kept["ceiling"]["named"] == 2
    assert found["run"]["charged"] == found["run"]["heard"] == 100
