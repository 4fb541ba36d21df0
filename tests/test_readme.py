"""What the README shows is what happens."""

import re
from pathlib import Path

from tacit import experiment

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
EXAMPLE = ROOT / "examples" / "survival.toml"


def test_the_demo_prints_the_scores_of_the_readme():
    summary = experiment.read(EXAMPLE).run(None).summary()
    table = next(part for part in summary.split("\n\n") if "federated" in part)
    assert table in README


def test_the_code_of_the_readme_runs(tmp_path, capsys):
    code = next(
        block for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "tacit.fit(" in block
    )
    names: dict = {}
    exec(code.replace("runs/mine", str(tmp_path / "mine")).replace("rounds=40", "rounds=2"), names)
    assert "epsilon" in capsys.readouterr().out
    assert len(names["run"].history) == 2
    assert (tmp_path / "mine" / "ledger.db").exists()


def test_the_template_is_the_example():
    template = ROOT / "src" / "tacit" / "templates" / "survival.toml"
    assert template.read_text() == EXAMPLE.read_text()
