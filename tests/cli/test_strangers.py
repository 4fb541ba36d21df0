"""Files that strangers send: no code of theirs runs unasked, nothing moves a terminal, sizes come first."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from tacit.cli.app import app
from tacit.survival.data import simulate

SIMULATED = """
rounds = 2
baselines = false
[data]
records = 80
features = 3
[sites]
count = 3
[task]
kind = "logistic-hazard"
hidden = [3]
cuts = 3
horizon = 3.0
"""
PRIVATE = """
[privacy]
unit = "record"
epsilon = 3.0
delta = 1e-5
clip = 1.0
"""
CSV = SIMULATED.replace("records = 80\nfeatures = 3", 'kind = "csv"\npath = "patients.csv"').replace(
    "count = 3", 'kind = "by-column"'
)
EVIL = """
from dataclasses import dataclass
from pathlib import Path
from tacit.survival.tasks import LogisticHazard

Path(__file__).with_name("executed").touch()

@dataclass(frozen=True, kw_only=True)
class Task(LogisticHazard):
    pass
"""
PATIENTS = simulate("SDGM1", records=60, features=3, seed=1).assign(site=["oslo", "bergen", "aker"] * 20)


def tacit(*words: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, list(words))
    assert not re.search(r"[^\n\x20-\x7e\xa0-\U0010ffff]", done.output), repr(done.output)
    return done.exit_code, done.stdout, done.stderr


def refused(*words: str) -> str:
    """The one short sentence that a refused command says."""
    code, out, err = tacit(*words)
    assert (code, out) == (2, ""), err
    assert err.startswith("tacit: ")
    assert len(err.splitlines()) == 1
    assert len(err) < 2_000
    assert "a bug of ours" not in err
    return err


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of ours, whose folder names a class beside it."""
    place = tmp_path_factory.mktemp("strangers")
    (place / "plain.toml").write_text(SIMULATED + PRIVATE)
    assert tacit("run", str(place / "plain.toml"), "--out", str(place / "run"), "--quiet")[0] == 0
    return place / "run"


@pytest.fixture
def trap(run: Path, folder: Path) -> Path:
    """The same with code beside it."""
    for file in run.iterdir():
        if file.is_file():
            (folder / "run").mkdir(exist_ok=True)
            (folder / "run" / file.name).write_bytes(file.read_bytes())
    (folder / "run" / f"evil_{folder.name}.py").write_text(EVIL)
    text = (folder / "run" / "experiment.toml").read_text()
    (folder / "run" / "experiment.toml").write_text(
        text.replace('"logistic-hazard"', f'"evil_{folder.name}:Task"')
    )
    yield folder / "run"
    sys.modules.pop(f"evil_{folder.name}", None)


@pytest.mark.parametrize("verb", ["show", "report", "export", "audit", "plan", "deploy"])
def test_looking_at_a_run_executes_nothing_from_its_folder(trap: Path, verb: str):
    before = list(sys.path)
    err = refused(verb, str(trap))
    assert f"would import evil_{trap.parent.name} from {trap}/evil_{trap.parent.name}.py" in err
    assert "--trust" in err
    assert not (trap / "executed").exists()
    assert sys.path == before


@pytest.mark.parametrize("verb", ["show", "plan"])
def test_whoever_trusts_a_folder_says_so_and_is_told_what_is_imported(trap: Path, verb: str):
    code, _, err = tacit(verb, str(trap), "--trust")
    assert code == 0, err
    assert f"tacit: importing evil_{trap.parent.name} from {trap}/evil_" in err
    assert (trap / "executed").exists()


def test_a_file_is_planned_once_it_was_said_what_is_imported(trap: Path):
    kind = f'"evil_{trap.parent.name}:Task"'
    (trap.parent / "own.toml").write_text(SIMULATED.replace('"logistic-hazard"', kind))
    (trap / f"evil_{trap.parent.name}.py").rename(trap.parent / f"evil_{trap.parent.name}.py")
    code, _, err = tacit("plan", "own.toml")
    assert code == 0, err
    assert err.splitlines()[0].startswith(
        f"tacit: importing evil_{trap.parent.name} from {trap.parent}/evil_"
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("task.hidden=[1000000000]", "at most 100,000"),
        ("task.hidden=[100000, 100000]", "weights at most"),
        (f"task.hidden={[3] * 101}", "at most 100"),
        ("task.cuts=1000000000", "at most 10,000"),
        ("task.steps=50000000", "at most 1,000,000"),
        ("rounds=1000000", "at most 100,000"),
        ("sites.count=1000000000", "at most 100,000"),
        ("data.records=10000000000", "at most 20,000,000"),
        ("data.features=1000000000", "at most 50,000"),
        ("task.sample=1e-300", "at least 1e-09"),
        ("task.sample=5e-324", "at least 1e-09"),
        ("seed=" + "9" * 5000, "too long"),
        ("seed=0x" + "f" * 5000, "more than 100 digits"),
        ("task.hidden=" + "[" * 5000, "nested too deep"),
        ("privacy.clip=" + "1" * 100 + ".5", "clip"),
    ],
)
def test_sizes_are_refused_before_any_work_is_done(folder: Path, change: str, said: str):
    (folder / "s.toml").write_text(SIMULATED + PRIVATE)
    assert said in refused("plan", "s.toml", "--set", change)


@pytest.mark.parametrize(
    "text",
    [
        "seed = " + "9" * 5000,
        "seed = " + "[" * 5000,
        'name = "' + "x" * 150_000 + '"',
        '"\\u001b[2Jx" = 1',
        '"\\u001b]0;pwn\\u0007" = 1',
        '"two\\nlines" = 1',
        f'"{"k" * 100_000}" = 1',
        f'name = "{"k" * 100_000}"',
        'name = "\\u001b[31m"',
        '"\\u202egnp.exe" = 1',
        "x\x1b[2J = 1",
        '[task]\nkind = "\\u009b2J"',
        '[task]\nkind = "\\u001b[2J:Task"',
        '[task]\nkind = "cox-ph"\n[data]\nkind = "csv"\npath = "x"\ntime = "\\u009b"\nevent = "\\u009b"',
    ],
)
@pytest.mark.parametrize("verb", ["plan", "run"])
def test_what_a_file_says_is_repeated_harmlessly_and_briefly(folder: Path, text: str, verb: str):
    (folder / "s.toml").write_text(text)
    _ = refused(verb, "s.toml")


@pytest.mark.parametrize("name", ["\x1b[31mX", "two\nlines", "\x9b2J", "x" * 50_000])
def test_names_in_a_table_are_repeated_harmlessly(folder: Path, name: str):
    named = PATIENTS.assign(site=[name] + ["oslo"] * 59)
    named.to_csv(folder / "patients.csv", index=False)
    (folder / "s.toml").write_text(CSV)
    code, out, err = tacit("run", "s.toml")
    assert code == 2, err
    assert max(map(len, (out + err).splitlines())) < 2_000
    PATIENTS.rename(columns={"x1": name}).assign(time="never").to_csv(folder / "patients.csv", index=False)
    _ = refused("run", "s.toml")


def test_a_name_that_no_directory_could_have_is_refused_and_not_echoed_whole(folder: Path):
    (folder / "s.toml").write_text(f'name = "{"x" * 100_000}"\n' + CSV)
    said = refused("plan", "s.toml")
    assert "at most 100 characters long" in said
    assert len(said) < 1_000


def test_a_header_that_names_a_column_twice_is_refused(folder: Path):
    (folder / "s.toml").write_text(
        CSV.replace('path = "patients.csv"', 'path = "patients.csv"\ntime = "days"\nevent = "relapse"')
    )
    rows = "".join(f"{40 + i % 40},{('oslo', 'aker', 'bergen')[i % 3]},{1 + i},{i % 2}\n" for i in range(60))
    (folder / "patients.csv").write_text("days,site,days,relapse\n" + rows)
    assert "its header names the column 'days' 2 times: rename all but one" in refused("run", "s.toml")
    # Blanks around a name do not make it another one.
    (folder / "patients.csv").write_text("days ,site,days,relapse\n" + rows)
    assert "its header names the column 'days' 2 times" in refused("run", "s.toml")
    # As pandas writes it, once it has read such a file.
    (folder / "patients.csv").write_text("days,site,days.1,relapse\n" + rows)
    assert "column days.1" in refused("run", "s.toml")
    (folder / "patients.csv").write_text("age,site,days,relapse\n" + rows)
    assert tacit("run", "s.toml", "--quiet")[0] == 0


def test_a_parquet_file_that_names_a_column_twice_is_refused(folder: Path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = [PATIENTS["time"], PATIENTS["x1"], PATIENTS["event"], PATIENTS["site"]]
    table = pa.Table.from_arrays([pa.array(c) for c in columns], names=["time", "time", "event", "site"])
    pq.write_table(table, folder / "patients.parquet")
    (folder / "s.toml").write_text(CSV.replace("patients.csv", "patients.parquet"))
    assert "its header names the column 'time' 2 times" in refused("run", "s.toml")


def test_a_small_parquet_file_of_many_rows_is_refused_before_it_is_read(folder: Path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    zeros = pa.DictionaryArray.from_arrays(pa.array([0] * 1_000_000, pa.int8()), pa.array([0.0]))
    schema = pa.schema([("time", zeros.type)])
    with pq.ParquetWriter(folder / "patients.parquet", schema) as writer:
        for _ in range(25):
            writer.write_table(pa.Table.from_arrays([zeros], schema=schema))
    (folder / "s.toml").write_text(CSV.replace("patients.csv", "patients.parquet"))
    assert (folder / "patients.parquet").stat().st_size < 1_000_000
    assert "it has 25,000,000 rows, and may have 20,000,000" in refused("run", "s.toml")


def test_a_line_without_an_end_is_no_table(folder: Path):
    with (folder / "patients.csv").open("wb") as stream:
        stream.truncate(2**30)
    (folder / "s.toml").write_text(CSV)
    assert "a line of it is longer than" in refused("run", "s.toml")


@pytest.mark.parametrize("name", ["patients.csv", "s.toml"])
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_a_named_pipe_is_waited_for_by_nobody(folder: Path, name: str, kind: str):
    (folder / "s.toml").write_text(CSV)
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name) if kind == "pipe" else (folder / name).symlink_to("/dev/zero")
    assert "and must be a plain file" in refused("run", "s.toml")


@pytest.mark.parametrize("verb", [["show"], ["report"], ["export"], ["ledger"], ["run", "--resume"]])
@pytest.mark.parametrize("name", ["experiment.toml", "ledger.db", "summary.json", "state.safetensors"])
def test_a_named_pipe_in_a_run_is_waited_for_by_nobody(run: Path, folder: Path, verb: list[str], name: str):
    for file in run.iterdir():
        if file.is_file() and file.name != name:
            (folder / file.name).write_bytes(file.read_bytes())
    os.mkfifo(folder / name)
    code, _, err = tacit(*verb, str(folder))
    assert code in (0, 2, 4), err
    assert "a bug of ours" not in err


def test_a_control_experiment_without_gymnasium_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    assert tacit("new", "control")[0] == 0
    for verb in ("plan", "run"):
        assert "which is not installed: pip install 'tacit[control]'" in refused(verb, "control.toml")


def test_a_rehearsal_without_flower_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "flwr", None)
    assert tacit("new", "survival")[0] == 0
    assert "pip install 'tacit[flower]'" in refused("deploy", "survival.toml", "--rehearse")
    assert sorted(os.listdir()) == ["survival.toml"]


def command(*words: str, **given: object) -> "subprocess.CompletedProcess[bytes]":
    code = f"import sys; sys.argv[1:] = {list(words)!r}; from tacit.cli.app import main; main()"
    return subprocess.run([sys.executable, "-c", code], check=False, **{"capture_output": True, **given})


def test_a_terminal_of_ascii_shows_a_plan(folder: Path):
    (folder / "s.toml").write_text(SIMULATED + PRIVATE)
    ascii_alone = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = command("plan", "s.toml", env=ascii_alone)
    assert (done.returncode, done.stderr) == (0, b"plan of experiment\n")
    assert b"any one record at any site - epsilon 2.9" in done.stdout
    (folder / "ø.toml").write_text(SIMULATED.replace("rounds", '"røunds"'))
    done = command("plan", "ø.toml", "--json", env=ascii_alone)
    assert done.returncode == 2
    assert "ø.toml: røunds is not known" in json.loads(done.stdout)["error"]["message"]
    assert done.stderr.startswith(rb"tacit: \xf8.toml: r\xf8unds is not known")


@pytest.mark.parametrize(
    "words", [["plan", "s.toml"], ["plan", "s.toml", "--json"], ["--help"], ["--version"]]
)
def test_a_full_disk_is_no_bug_of_ours(folder: Path, words: list[str]):
    (folder / "s.toml").write_text(SIMULATED + PRIVATE)
    with open("/dev/full", "wb") as full:
        done = command(*words, stdout=full, stderr=subprocess.PIPE, capture_output=False)
    said = done.stderr.decode().splitlines()
    assert done.returncode == 2, said
    assert said[-1].startswith("tacit: ")
    assert "No space left on device" in said[-1]
    assert "Traceback" not in done.stderr.decode()
    assert "a bug of ours" not in done.stderr.decode()


def test_whoever_reads_no_more_is_told_no_more(folder: Path):
    (folder / "s.toml").write_text(SIMULATED + PRIVATE)
    ours, theirs = os.pipe()
    os.close(ours)
    with os.fdopen(theirs, "wb") as gone:
        done = command("plan", "s.toml", "--quiet", stdout=gone, stderr=subprocess.PIPE, capture_output=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_words_of_the_command_line_are_repeated_harmlessly():
    for words in (
        ["\x1b[2J"],
        ["plan", "--\x1b[2J"],
        ["plan", "\x1b[2J.toml"],
        ["privacy", "--steps", "\x1b[2J"],
    ):
        done = command(*words)
        assert done.returncode == 2
        assert b"\x1b" not in done.stdout + done.stderr


def test_a_machine_without_memory_is_no_bug_of_ours(monkeypatch: pytest.MonkeyPatch, folder: Path):
    from tacit.cli.verbs import plan

    def exhausted(*given: object) -> None:
        raise MemoryError

    monkeypatch.setattr(plan, "plan_file", exhausted)
    assert "does not have enough memory" in refused("plan", "s.toml")


def test_what_real_federations_have_is_not_too_large(folder: Path):
    """10,000 sites, 2,000,000 records, 5,000 features and 1,000 rounds pass every limit of a file."""
    from tacit.experiments.experiment import read

    text = SIMULATED.replace("rounds = 2", "rounds = 1000").replace("records = 80", "records = 2_000_000")
    (folder / "s.toml").write_text(text.replace("count = 3", "count = 10_000") + PRIVATE)
    assert len(read(folder / "s.toml").sites.names) == 10_000
    wide = SIMULATED.replace("features = 3", "features = 5000").replace("hidden = [3]", "hidden = [512, 512]")
    (folder / "w.toml").write_text(wide)
    assert read(folder / "w.toml").data.features == 5000
    frame = pd.DataFrame({"time": [1.0, 2.0], "event": [0, 1], **{f"x{i}": [0.5, 1.5] for i in range(5000)}})
    frame.to_csv(folder / "wide.csv", index=False)
    from tacit.sites.table_files import read as read_table

    assert read_table(folder / "wide.csv").shape == (2, 5002)
