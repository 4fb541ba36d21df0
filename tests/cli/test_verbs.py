"""The command, as a person or a script meets it: what it prints and how it exits."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tacit import Ledger, Release
from tacit.cli.app import app
from tacit.privacy import accounting

ROOT = Path(__file__).parents[2]
EXAMPLE = str(ROOT / "examples" / "survival.toml")


def tacit(*words: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, list(words))
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    path = tmp_path / "ledger.db"
    with Ledger(path) as account:
        account.allow(epsilon=3, delta=1e-5)
        for number in range(5):
            account.charge(
                [Release(scale=9.0, sensitivity=1.0, subject="records@oslo", purpose=f"round {number}")]
            )
    return path


def test_noise_from_epsilon_as_json():
    code, out, _ = tacit("privacy", "--epsilon", "1", "--delta", "1e-5", "--json")
    answer = json.loads(out)
    assert code == 0
    assert answer["noise_multiplier"] == pytest.approx(3.7306, abs=1e-3)
    assert answer["epsilon"] <= 1
    assert answer["comparisons"]["zcdp"] > answer["epsilon"]


def test_epsilon_from_noise_as_json():
    words = ("--noise-multiplier", "1", "--delta", "1e-5", "--steps", "10000", "--rate", "0.01", "--json")
    code, out, _ = tacit("privacy", *words)
    answer = json.loads(out)
    assert code == 0
    assert answer["epsilon"] == pytest.approx(6.1877, rel=2e-3)
    assert answer["comparisons"]["rdp"] == pytest.approx(6.7128, rel=1e-3)


def test_relation_and_mechanism_are_heard():
    _, doubled, _ = tacit("privacy", "--epsilon", "1", "--relation", "replace", "--json")
    assert json.loads(doubled)["noise_multiplier"] == pytest.approx(2 * 3.7306, abs=2e-3)
    _, pure, _ = tacit(
        "privacy", "--epsilon", "1", "--delta", "0", "--mechanism", "laplace", "--steps", "10", "--json"
    )
    assert json.loads(pure)["noise_multiplier"] == pytest.approx(10)


def test_the_calculator_prints_a_table_for_people():
    code, out, _ = tacit("privacy", "--epsilon", "1", "--steps", "100")
    assert code == 0
    assert "37.3063 times the clip bound" in out
    assert "claimed by Tacit" in out
    assert "advanced composition" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--epsilon", "-1"), "epsilon = -1.0 is not allowed"),
        (("--epsilon", "inf"), "epsilon = inf is not allowed"),
        (("--epsilon", "1", "--delta", "1"), "delta = 1.0 is not allowed"),
        (("--epsilon", "1", "--delta", "0"), "delta = 0.0 is not allowed"),
        (("--epsilon", "1", "--delta", "nan"), "delta = nan is not allowed"),
        (("--epsilon", "1", "--rate", "1.5"), "rate = 1.5 is not allowed"),
        (("--epsilon", "1", "--steps", "0"), "steps = 0 is not allowed"),
        (("--noise-multiplier", "nan"), "noise multiplier = nan is not allowed"),
        (("--noise-multiplier", "0"), "noise multiplier = 0.0 is not allowed"),
        (("--epsilon", "1", "--noise-multiplier", "1"), "give exactly one"),
        ((), "give exactly one"),
    ],
)
def test_bad_numbers_get_one_sentence_and_exit_code_2(words: tuple[str, ...], said: str):
    code, out, err = tacit("privacy", *words)
    assert code == 2
    assert out == ""
    assert said in err
    assert len(err.strip().splitlines()) == 1
    code, out, _ = tacit("privacy", *words, "--json")
    assert (code, json.loads(out)["error"]["exit_code"]) == (2, 2)


def test_a_word_that_is_not_a_number_is_refused_by_the_parser():
    code, _, err = tacit("privacy", "--epsilon", "much")
    assert code == 2
    assert "--epsilon" in err


def test_a_plan_says_promise_noise_price_and_warnings():
    code, out, err = tacit("plan", EXAMPLE)
    assert code == 0
    assert err == "plan of relapse\n"
    for word in ("promise", "noise", "spends", "and be refused", "warning", "Not protected"):
        assert word in out
    assert tacit("plan", EXAMPLE, "-q")[2] == ""


def test_a_plan_as_json():
    _, out, _ = tacit("plan", EXAMPLE, "--json")
    made = json.loads(out)
    assert made["promise"]["epsilon"] <= 3
    assert made["promise"]["rehearsal"] is True
    assert made["spends"]["7"] > 3
    assert made["forecast"]["kept"] > 0.9


def test_a_bad_file_exits_with_2(tmp_path: Path):
    path = tmp_path / "bad.toml"
    path.write_text(Path(EXAMPLE).read_text().replace("epsilon = 3.0", "epsilon = -1.0"))
    code, _, err = tacit("plan", str(path))
    assert code == 2
    assert "epsilon = -1.0 is not allowed" in err


def test_a_refusal_names_the_way_out(tmp_path: Path):
    (tmp_path / "own_coupled.py").write_text(
        "from dataclasses import dataclass\n"
        "from tacit.survival import LogisticHazard\n"
        "@dataclass(frozen=True, kw_only=True)\n"
        "class Coupled(LogisticHazard):\n"
        "    separable = False\n"
    )
    path = tmp_path / "coupled.toml"
    network = ROOT / "examples" / "network.toml"
    path.write_text(network.read_text().replace("logistic-hazard", "own_coupled:Coupled"))
    code, _, err = tacit("plan", str(path))
    assert code == 2
    assert "poisson-ph" in err


def test_a_ledger_is_listed_with_its_running_price(ledger: Path):
    code, out, _ = tacit("ledger", str(ledger), "--json")
    found = json.loads(out)
    assert code == 0
    running = [row["running_epsilon"] for row in found["releases"]]
    assert running == sorted(running)
    assert found["epsilon"] == running[-1]
    assert (found["events"], found["valid"]) == (5, True)
    assert "round 4" in tacit("ledger", str(ledger))[1]


def test_a_sound_ledger_verifies(ledger: Path):
    code, out, _ = tacit("ledger", str(ledger), "--verify", "--json")
    found = json.loads(out)
    assert (code, found["valid"], found["events"]) == (0, True, 5)
    # Five charges without a plan: each may have been chosen after seeing the last, so a filter prices them.
    planned = accounting.epsilon([Release(scale=9.0, sensitivity=1.0, count=5)], 1e-5)
    assert found["epsilon_as_planned"] == pytest.approx(planned)
    assert planned < found["epsilon_as_lifetime"] == found["epsilon"] < 1.12 * planned
    assert "every hash matches" in tacit("ledger", str(ledger), "--verify")[1]


def test_a_changed_ledger_exits_with_4(ledger: Path):
    ledger.write_bytes(ledger.read_bytes().replace(b'"scale":9.0', b'"scale":8.0', 1))
    code, out, _ = tacit("ledger", str(ledger), "--verify", "--json")
    assert code == 4
    assert json.loads(out)["valid"] is False
    assert tacit("ledger", str(ledger))[0] == 4


@pytest.mark.parametrize("content", [b"this is not a ledger, and has never been one", b""])
def test_what_is_no_ledger_exits_with_2(tmp_path: Path, content: bytes):
    path = tmp_path / "other.db"
    path.write_bytes(content)
    for words in ((), ("--verify",)):
        code, _, err = tacit("ledger", str(path), *words)
        assert code == 2
        assert str(path) in err


def test_a_missing_ledger_exits_with_2(tmp_path: Path):
    code, _, err = tacit("ledger", str(tmp_path / "nowhere.db"), "--verify")
    assert code == 2
    assert "there is no such file" in err
    assert not (tmp_path / "nowhere.db").exists()


def test_a_bug_of_ours_exits_with_1_and_asks_for_a_report(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(accounting, "calibrate", lambda **_: 1 / 0)
    code, _, err = tacit("privacy", "--epsilon", "1")
    assert code == 1
    assert "a bug of ours" in err


def test_an_interrupt_exits_with_130(monkeypatch: pytest.MonkeyPatch):
    def interrupted(**_: object) -> float:
        raise KeyboardInterrupt

    monkeypatch.setattr(accounting, "calibrate", interrupted)
    assert tacit("privacy", "--epsilon", "1")[0] == 130


def test_the_installed_command_answers():
    command = Path(sys.executable).with_name("tacit")
    words = [
        str(command),
        "privacy",
        "--epsilon",
        "1",
        "--delta",
        "1e-5",
        "--steps",
        "10000",
        "--rate",
        "0.01",
    ]
    done = subprocess.run([*words, "--json"], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["noise_multiplier"] == pytest.approx(3.814, abs=5e-3)
    assert done.stderr == ""


def test_the_version_is_printed():
    assert tacit("--version")[1].startswith("tacit ")


def test_the_readme_shows_what_the_commands_print():
    readme = (ROOT / "README.md").read_text()
    words = ("--epsilon", "1", "--delta", "1e-5", "--steps", "10000", "--rate", "0.01")
    assert tacit("privacy", *words)[1].strip() in readme
    assert tacit("plan", EXAMPLE)[1].split("\n\n")[0] in readme
