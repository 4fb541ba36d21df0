"""Messages to a site and files in its folder may be anything: one sentence, no code, no waiting."""

import json
import os
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from typer.testing import CliRunner

from tacit.cli.app import app
from tacit.deploy.folders import DeployedFolders, write
from tacit.deploy.site import config
from tacit.deploy.site.config import accept
from tacit.deploy.site.guard import Guard
from tacit.deploy.site.preflight import check
from tacit.survival.data import simulate

EXPERIMENT: dict[str, Any] = {
    "name": "trial",
    "rounds": 2,
    "baselines": False,
    "data": {"kind": "held-records", "columns": ["x1", "x2"], "records": 120},
    "sites": {"kind": "named", "names": ["oslo", "bergen"]},
    "task": {"kind": "logistic-hazard", "cuts": [1.0, 2.0, 3.0], "hidden": [4], "steps": 2, "sample": 0.1},
    "privacy": {"unit": "record", "epsilon": 0.9, "delta": 1e-5, "clip": 1.0},
}


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> DeployedFolders:
    out = tmp_path_factory.mktemp("out")
    holding = {"path": "data/records.csv"}
    made = write(EXPERIMENT, {"oslo": holding, "bergen": {}}, out, host="127.0.0.1", port=20000)
    simulate("SDGM1", records=60, features=2, seed=1).to_csv(
        made.sites["oslo"] / "data" / "records.csv", index=False
    )
    return made


@pytest.fixture
def oslo(ready: DeployedFolders, tmp_path: Path) -> Path:
    """A copy that a test may spoil."""
    return Path(shutil.copytree(ready.sites["oslo"], tmp_path / "oslo"))


def tacit(*words: str) -> tuple[int, str]:
    """Run a command; return its exit code and its output, after checking that the output is harmless."""
    done = CliRunner().invoke(app, list(words))
    assert all(sign == "\n" or sign.isprintable() for sign in done.output)
    assert "a bug of ours" not in done.output
    assert max(map(len, done.output.splitlines()), default=0) < 2_500
    return done.exit_code, done.output


def kept(place: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(place.rglob("*")) if path.is_file()}


@pytest.mark.parametrize(
    "spoil",
    [
        lambda place: (shutil.rmtree(place / "secret"), (place / "secret").write_text("a file")),
        lambda place: (shutil.rmtree(place / "secret"), (place / "secret").symlink_to("secret")),
        lambda place: ((place / "node" / "node.key").unlink(), (place / "node" / "node.key").mkdir()),
        lambda place: (
            (place / "node" / "node.key.pub").unlink(),
            os.mkfifo(place / "node" / "node.key.pub"),
        ),
        lambda place: (shutil.rmtree(place / "node"), (place / "node").symlink_to("/nowhere")),
        lambda place: ((place / "site.toml").unlink(), os.mkfifo(place / "site.toml")),
    ],
    ids=[
        "secret a file",
        "secret a loop",
        "key a folder",
        "public key a pipe",
        "node nowhere",
        "site a pipe",
    ],
)
def test_keys_are_renewed_wholly_or_not_at_all(oslo: Path, spoil: Any) -> None:
    spoil(oslo)
    before = kept(oslo)
    code, said = tacit("site", "renew", str(oslo))
    assert code == 2, said
    assert len(said.splitlines()) == 1
    assert kept(oslo) == before


def test_renewed_keys_fit_together(oslo: Path) -> None:
    before = config.SiteFile.read(oslo).colleagues["oslo"]
    code, said = tacit("site", "renew", str(oslo))
    after = config.SiteFile.read(oslo).colleagues["oslo"]
    assert (code, said) == (0, f'oslo = "{after}"\n')
    assert after != before
    assert config.identity(oslo).public.hex() == after
    assert (oslo / "secret" / "identity.key").stat().st_mode & 0o777 == 0o600
    assert (oslo / "node" / "node.key").stat().st_mode & 0o777 == 0o600


def changed(**tables: Any) -> str:
    document = {name: {**EXPERIMENT[name], **more} if isinstance(more, dict) else more
                for name, more in tables.items()}  # fmt: skip
    return tomli_w.dumps({**EXPERIMENT, **document})


HOSTILE = {
    "digits": "seed = " + "9" * 5000,
    "brackets": "seed = " + "[" * 5000,
    "parts": ".".join("a" * 100_000) + " = 1",
    "text": "#" * 2**23,
    "width": changed(task={"hidden": [1_000_000_000]}),
    "layers": changed(task={"hidden": [9] * 1000}),
    "weights": changed(task={"hidden": [100_000, 100_000]}),
    "cuts": changed(task={"cuts": 1_000_000_000, "horizon": 1.0}),
    "many cuts": changed(task={"cuts": [float(cut) for cut in range(1, 20_000)]}),
    "steps": changed(task={"steps": 50_000_000}),
    "rate": changed(task={"sample": 1e-300}),
    "rounds": changed(rounds=10**6),
    "names": changed(sites={"names": [f"s{number}" for number in range(100_001)]}),
    "rounds times names": changed(rounds=1000, sites={"names": ["oslo", *(f"s{n}" for n in range(1000))]}),
    "records": changed(data={"records": 10**90}),
    "escape": '"\\u001b[2J" = 1',
    "lines": '"a\\nb" = 1',
    "code": changed(task={"kind": "evil:Task"}),
    "code in a step": tomli_w.dumps(
        {**EXPERIMENT, "aggregation": {"kind": "bucketing", "then": {"kind": "evil:Rule"}}}
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_an_experiment_from_a_stranger_is_refused_before_any_work(
    oslo: Path, tmp_path: Path, name: str
) -> None:
    (tmp_path / "evil.py").write_text(
        "from pathlib import Path\nPath(__file__).with_name('executed').touch()\n"
    )
    shutil.copy(tmp_path / "evil.py", oslo)
    file = tmp_path / "experiment.toml"
    file.write_text(HOSTILE[name])
    code, said = tacit("site", "check", str(oslo), "--experiment", str(file), "--json")
    assert code == 2, said
    assert not json.loads(said[: said.rindex("}") + 1])["ready"]
    code, said = tacit("site", "accept", str(oslo), str(file))
    assert code in (0, 2), said
    assert not (tmp_path / "executed").exists()
    assert not (oslo / "executed").exists()


@pytest.mark.parametrize(
    "name",
    ["site.toml", "secret/identity.key", "node/node.key", "node/ca.crt", "state/ledger.db",
     "state/unusable.txt", "data/records.csv"],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_nothing_in_a_folder_is_waited_for(oslo: Path, name: str, kind: str) -> None:
    (oslo / name).unlink(missing_ok=True)
    os.mkfifo(oslo / name) if kind == "pipe" else (oslo / name).symlink_to("/dev/zero")
    code, said = tacit("site", "check", str(oslo))
    assert code == 2, said


def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The folders and files that are synced, as they are."""
    found, fsync = list[str](), os.fsync

    def counted(handle: int) -> None:
        is_folder = stat.S_ISDIR(os.fstat(handle).st_mode)
        found.append(Path(os.readlink(f"/proc/self/fd/{handle}")).name if is_folder else "file")
        fsync(handle)

    monkeypatch.setattr(os, "fsync", counted)
    return found


def test_what_is_accepted_is_on_disk_before_it_counts(oslo: Path, tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "experiment.toml").write_text(tomli_w.dumps(EXPERIMENT))
    (oslo / "site.toml").chmod(0o640)
    found = synced(monkeypatch)
    accept(oslo, tmp_path / "experiment.toml")
    assert found == ["file", "oslo"]
    assert (oslo / "site.toml").stat().st_mode & 0o777 == 0o640


def test_an_experiment_that_a_guard_keeps_is_on_disk_before_it_answers(oslo: Path, monkeypatch: Any) -> None:
    guard = Guard(oslo, told=lambda line: None)
    found = synced(monkeypatch)
    guard._keep("ab.toml", "seed = 1\r\n")
    assert found == ["file", "experiments"]
    # To the last sign: a question is known by the very text that was agreed to.
    assert (oslo / "state" / "experiments" / "ab.toml").read_bytes() == b"seed = 1\r\n"


def test_a_log_of_a_guard_is_one_line_for_each_message(capsys: pytest.CaptureFixture[str]) -> None:
    from tacit.deploy.site.guard import log

    log("refused: \x1b[2J\nok: forged " + "x" * 100_000)
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "\x1b" not in said
    assert len(said) < 2_000


def test_a_site_that_is_ready_is_still_found_ready(oslo: Path) -> None:
    assert [found.what for found in check(oslo) if not found.ok and "the same user" not in found.what] == []
