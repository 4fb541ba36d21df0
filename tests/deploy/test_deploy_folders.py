"""Folders to be carried to machines: complete, closed, never overwritten, working where they are put."""

import configparser
import os
import re
import shutil
import stat
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tacit.deploy import certificates
from tacit.deploy.coordinator.run import FOLDER, OUT, RESUME
from tacit.deploy.folders import (
    DeployedFolders,
    commands,
    coordinator_folder,
    renew_certificate,
    renew_keys,
    site_folder,
    slug_of,
    write,
)
from tacit.deploy.site import config as sitefile
from tacit.deploy.site.config import CoordinatorFile, SiteFile, SiteLimits
from tacit.errors import InvalidFile, InvalidValue, Refused

HOST, OLAV = "fed.example.org", "Sankt Olav's"
EXPERIMENT: dict[str, Any] = {
    "name": "trial",
    "data": {"kind": "held-records", "columns": ["age", "stage of disease"], "time": "days"},
    "sites": {"kind": "named", "names": ["oslo", OLAV]},
    "task": {"kind": "logistic-hazard", "cuts": [1.0, 2.0]},
}
SITES: dict[str, dict[str, Any]] = {"oslo": {"path": "data/a.parquet", "columns": {"age": "alder"}}, OLAV: {}}
# Programs that say how they were called instead of doing anything.
SAYS = '#!/bin/bash\necho "$(basename "$0")" "$@"\nenv | grep -E "^(FLWR|OMP|NUMBA)" | sort\npwd\n'


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> DeployedFolders:
    limits = {OLAV: SiteLimits(epsilon=float("inf"), tasks=("cox-ph",))}
    return write(EXPERIMENT, SITES, tmp_path_factory.mktemp("out"), host=HOST, port=8443, limits=limits)


@pytest.fixture
def here(tmp_path: Path) -> DeployedFolders:
    return write(EXPERIMENT, SITES, tmp_path / "out", host="127.0.0.1", port=20000)


def files(made: DeployedFolders) -> list[Path]:
    return [file for file in made.authority.parent.rglob("*") if file.is_file()]


def said(script: Path, folder: Path, *words: str, programs: dict[str, str] | None = None) -> str:
    """Run a script with stand-ins for programs, which print how they were called."""
    usual = ("flower-superlink", "flower-supernode", "flower-superexec", "tacit", "flwr")
    folder.mkdir(exist_ok=True)
    for name, text in {**dict.fromkeys(usual, SAYS), **(programs or {})}.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    found = subprocess.run(
        ["bash", str(script), *words],
        env={"PATH": f"{folder}:/usr/bin:/bin", "TACIT_UNITS": str(folder)},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    return found.stdout + found.stderr


def test_everybody_knows_the_keys_of_the_others_and_has_no_secret_but_their_own(
    made: DeployedFolders,
) -> None:
    known = CoordinatorFile.read(made.coordinator)
    assert (known.host, known.port) == (HOST, 8443)
    assert sitefile.identity(made.coordinator).public.hex() == known.key
    for name, place in made.sites.items():
        file = SiteFile.read(place)
        assert (file.name, file.coordinator, file.colleagues) == (name, known.key, known.sites)
        assert sitefile.identity(place).public.hex() == known.sites[name]
        public = certificates.public_of(place / "node" / "node.key")
        assert (made.coordinator / "nodes" / f"{slug_of(name)}.pub").read_bytes() == public
    contents = [file.read_bytes() for file in files(made)]
    secrets = [file for file in files(made) if re.search(r"(identity|node|server|ca)\.key$", file.name)]
    assert len(secrets) == 2 * 2 + 2 + 1
    for file in secrets:
        assert contents.count(file.read_bytes()) == 1


def test_what_noise_is_drawn_from_is_not_made_here(made: DeployedFolders) -> None:
    assert not [file for file in files(made) if "entropy" in file.name]


def test_secrets_are_closed_to_others(made: DeployedFolders) -> None:
    for file in files(made):
        secret = file.suffix in (".key", ".secret")
        mode = stat.S_IMODE(file.stat().st_mode)
        assert (mode == 0o600) if secret else not mode & 0o022, file
    for place in made.sites.values():
        for name in ("secret", "state", "data"):
            assert stat.S_IMODE((place / name).stat().st_mode) == 0o700
    assert stat.S_IMODE(made.authority.parent.stat().st_mode) == 0o700


def test_the_authority_is_in_nobodys_folder(made: DeployedFolders) -> None:
    key = (made.authority / "ca.key").read_bytes()
    assert [file for file in files(made) if key in file.read_bytes()] == [made.authority / "ca.key"]
    tls = made.coordinator / "tls"
    assert certificates.is_issued_by(tls / "server.pem", made.sites["oslo"] / "node" / "ca.crt")


def test_a_site_file_says_what_was_decided_and_is_an_example_of_what_was_not(made: DeployedFolders) -> None:
    oslo, olav = (SiteFile.read(place) for place in made.sites.values())
    assert oslo.data == SITES["oslo"]
    assert oslo.limits == SiteLimits()
    assert olav.limits == SiteLimits(epsilon=float("inf"), tasks=("cox-ph",))
    text = (made.sites[OLAV] / "site.toml").read_text()
    filled = re.sub(r"^# (?=\[data|path|\S+ = |\".*\" = )", "", text, flags=re.M)
    columns = {"days": "days", "event": "event", "age": "age", "stage of disease": "stage of disease"}
    assert tomllib.loads(filled)["data"] == {"path": "data/records.csv", "columns": columns}


@pytest.mark.parametrize("kind", ["held-curves", "held-worlds"])
def test_the_example_fits_the_kind_of_data(kind: str, tmp_path: Path) -> None:
    made = write({"data": {"kind": kind}}, {"a": {}}, tmp_path, host=HOST, port=8443)
    text = (made.sites["a"] / "site.toml").read_text()
    filled = re.sub(r"^# (?=\[data|path|\S+ = )", "", text, flags=re.M)
    assert ("files" if kind == "held-curves" else "worlds") in tomllib.loads(filled)["data"]


def test_the_experiment_is_written_as_it_was_given(made: DeployedFolders) -> None:
    assert tomllib.loads((made.coordinator / "experiment.toml").read_text()) == EXPERIMENT


def test_nothing_is_overwritten(here: DeployedFolders) -> None:
    out = here.authority.parent
    before = {file: file.read_bytes() for file in files(here)}
    with pytest.raises(Refused, match="exists already"):
        write(EXPERIMENT, SITES, out, host=HOST, port=8443)
    assert {file: file.read_bytes() for file in files(here)} == before


def test_data_may_be_there_before(tmp_path: Path) -> None:
    for place in (site_folder(tmp_path, OLAV) / "data", coordinator_folder(tmp_path) / "data"):
        place.mkdir(parents=True)
        (place / "records.parquet").write_bytes(b"records")
    made = write(EXPERIMENT, SITES, tmp_path, host=HOST, port=8443)
    assert (made.sites[OLAV] / "data" / "records.parquet").read_bytes() == b"records"
    assert (made.coordinator / "data" / "records.parquet").exists()


@pytest.mark.parametrize(
    ("sites", "changes", "told"),
    [
        ({}, {}, "one site at least"),
        ({"coordinator": {}}, {}, "other names than"),
        ({"a b": {}, "A-B": {}}, {}, "differ in more than signs"),
        ({"!": {}}, {}, "a letter from a to z or a digit"),
        ({"a": {}}, {"host": "a:1"}, "host"),
        ({"a": {}}, {"port": 65535}, "port"),
        ({"a": {}}, {"days": 0}, "days"),
    ],
)
def test_what_cannot_be_deployed_is_refused_before_anything_is_written(
    sites: dict[str, Any], changes: dict[str, Any], told: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidValue, match=told):
        write(EXPERIMENT, sites, tmp_path / "out", **{"host": HOST, "port": 8443, **changes})
    assert not (tmp_path / "out").exists()


def test_every_script_is_one_that_bash_can_read(made: DeployedFolders) -> None:
    scripts = [str(file) for file in files(made) if file.suffix == ".sh"]
    assert len(scripts) == 2 * 3 + 7
    for script in scripts:
        subprocess.run(["bash", "-n", script], check=True)
        assert os.access(script, os.X_OK)


def test_scripts_work_wherever_their_folder_is_put(here: DeployedFolders, tmp_path: Path) -> None:
    place = tmp_path / "else where"
    shutil.move(here.sites["oslo"], place)
    node = said(place / "start-node.sh", tmp_path / "bin")
    assert "flower-supernode --superlink 127.0.0.1:20000 --root-certificates node/ca.crt" in node
    assert "--port 20001 --node-config tacit-door='run/door.sock'" in node
    for line in (
        "FLWR_TELEMETRY_ENABLED=0",
        "FLWR_DISABLE_UPDATE_CHECK=1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1",
        "OMP_NUM_THREADS=1",
        f"FLWR_HOME={place}/node/home",
        str(place),
    ):
        assert f"\n{line}\n" in node
    assert "tacit site serve .\n" in said(place / "start-guard.sh", tmp_path / "bin")


def test_the_superlink_listens_on_its_own_machine_alone_with_everything_on(
    made: DeployedFolders, tmp_path: Path
) -> None:
    found = said(made.coordinator / "start-superlink.sh", tmp_path / "bin")
    assert "flower-superlink --host 127.0.0.1 --port 9091 --isolation process" in found
    for option in (
        "--enable-supernode-auth",
        "--ssl-certfile tls/server.pem",
        "--database",
        "--superexec-auth",
    ):
        assert option in found
    front = (made.coordinator / "nginx.conf").read_text()
    assert re.findall(r"location (\S+)", front) == ["/v1/fleet/", "/"]
    assert "listen 8443 ssl" in front
    assert "proxy_pass https://127.0.0.1:9091/v1/fleet/;" in front


def test_on_one_machine_nodes_have_ports_of_their_own_and_no_door_is_opened(here: DeployedFolders) -> None:
    ports = {
        re.findall(r"TACIT_NODE_PORT:-(\d+)", (place / "start-node.sh").read_text())[0]
        for place in here.sites.values()
    }
    assert ports == {"20001", "20002"}
    assert not (here.coordinator / "nginx.conf").exists()


def test_a_run_is_started_by_our_own_verb_and_finds_its_superlink(
    here: DeployedFolders, tmp_path: Path
) -> None:
    assert "tacit run . --resume\n" in said(here.coordinator / "run.sh", tmp_path / "bin", "--resume")
    place = here.coordinator.resolve()
    link = {"address": "127.0.0.1:20000", "root-certificates": f"{place}/tls/ca.crt"}
    config = place / "home" / "config.toml"
    assert tomllib.loads(config.read_text())["superlink"] == {"default": "tacit", "tacit": link}
    moved = Path(shutil.move(place, tmp_path / "moved"))
    said(moved / "run.sh", tmp_path / "bin")
    found = tomllib.loads((moved / "home" / "config.toml").read_text())["superlink"]["tacit"]
    assert found["root-certificates"] == f"{moved}/tls/ca.crt"


def test_flower_takes_every_setting_that_a_run_is_given(made: DeployedFolders) -> None:
    known = tomllib.loads((made.coordinator / "app" / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    assert set(known["config"]) == {FOLDER, OUT, RESUME}
    for part in known["components"].values():
        module, _, name = part.partition(":")
        text = (made.coordinator / "app" / f"{module.replace('.', '/')}.py").read_text()
        assert f"{name} = " in text


def test_nodes_are_registered_once_and_what_goes_wrong_is_said(here: DeployedFolders, tmp_path: Path) -> None:
    register = here.coordinator / "register.sh"
    good = '#!/bin/bash\necho "SuperNode 8696141870729494665 registered successfully."\n'
    found = said(register, tmp_path / "bin", programs={"flwr": good})
    assert "oslo: registered, its node is number 8696141870729494665" in found
    assert "8696141870729494665 oslo" in (here.coordinator / "state" / "nodes.txt").read_text()
    again = '#!/bin/bash\necho "Public key already in use" >&2\nexit 1\n'
    assert "oslo: registered before" in said(register, tmp_path / "bin", programs={"flwr": again})
    broken = '#!/bin/bash\necho "no connection" >&2\nexit 1\n'
    assert "not registered: no connection" in said(register, tmp_path / "bin", programs={"flwr": broken})


def unit(file: Path) -> dict[str, list[str]]:
    parser = configparser.RawConfigParser(strict=True)
    parser.optionxform = str  # type: ignore[method-assign,assignment]
    parser.read(file)
    return {key: value.split() for key, value in parser["Service"].items()}


def test_the_guard_has_no_network_and_the_node_no_records(made: DeployedFolders) -> None:
    guard, node = (
        unit(made.sites["oslo"] / "units" / f"tacit-{name}-oslo.service") for name in ("guard", "node")
    )
    place = "/opt/tacit/oslo"
    assert guard["PrivateNetwork"] == ["yes"]
    assert guard["RestrictAddressFamilies"] == ["AF_UNIX"]
    assert guard["ReadWritePaths"] == [f"{place}/state", f"{place}/run"]
    assert set(node["InaccessiblePaths"]) == {f"{place}/data", f"{place}/secret", f"{place}/state"}
    assert node["ReadWritePaths"] == [f"{place}/node/home"]
    assert guard["User"] != node["User"]
    assert int(node["RestartSec"][0]) > 60
    for service in (guard, node):
        assert service["NoNewPrivileges"] == ["yes"]
        assert service["ProtectSystem"] == ["strict"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not on this machine")
def test_systemd_finds_nothing_wrong_with_the_units(made: DeployedFolders, tmp_path: Path) -> None:
    placed: list[str] = []
    for place in (made.coordinator, *made.sites.values()):
        for file in (place / "units").iterdir():
            text = re.sub(r"/opt/tacit/[\w-]+", str(place), file.read_text())
            (tmp_path / file.name).write_text(text)
            placed.append(str(tmp_path / file.name))
    assert len(placed) == 6
    found = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *placed], capture_output=True, text=True, check=False
    )
    ours = [line for line in found.stderr.splitlines() if "tacit-" in line]
    assert not ours


def test_installing_gives_each_user_what_is_theirs(here: DeployedFolders, tmp_path: Path) -> None:
    place = here.sites["oslo"]
    refused = said(place / "install.sh", tmp_path / "bin", programs={"id": "#!/bin/bash\necho 0\n"})
    assert "services cannot see" in refused or not str(place).startswith("/tmp/")
    # Folders of tests are where services cannot see them.
    text = (
        (place / "install.sh")
        .read_text()
        .replace("/tmp/*|", "")
        .replace(" -o tacit-guard -g tacit-guard", "")
    )
    (place / "install.sh").write_text(text)
    only = {"id": '#!/bin/bash\nif [ "$1" = -u ]; then echo 0; else exit 1; fi\n'}
    quiet = {name: f'#!/bin/bash\necho {name} "$@"\n' for name in ("useradd", "chown", "systemctl")}
    found = said(place / "install.sh", tmp_path / "bin", programs={**only, **quiet})
    assert found.count("useradd --system") == 2
    assert "chown -R tacit-guard:tacit-guard secret state data" in found
    assert "chown -R root:tacit-node node\n" in found
    assert "systemctl daemon-reload" in found
    assert len(sitefile.entropy(place)) == 32
    assert f"ExecStart={place}/start-guard.sh" in (tmp_path / "bin" / "tacit-guard-oslo.service").read_text()
    modes = {"site.toml": 0o640, "run": 0o2750, "node/node.key": 0o640, "node/home": 0o700, "secret": 0o700}
    assert {name: stat.S_IMODE((place / name).stat().st_mode) for name in modes} == modes
    entropy = sitefile.entropy(place)
    said(place / "install.sh", tmp_path / "bin", programs={**only, **quiet})
    assert sitefile.entropy(place) == entropy


def test_the_pages_say_what_to_open_how_to_stop_and_what_leaves(made: DeployedFolders) -> None:
    page = (made.sites["oslo"] / "README.md").read_text()
    words = " ".join(page.split())
    for part in (
        "outgoing TCP from this machine to fed.example.org, port 8443. Open nothing else: no incoming",
        "journalctl -u tacit-guard-oslo",
        "systemctl stop tacit-node-oslo tacit-guard-oslo",
        "To withdraw for good",
        "Never leaves: the records,",
    ):
        assert part in words
    for text in (
        page,
        (made.coordinator / "README.md").read_text(),
        (made.sites[OLAV] / "README.md").read_text(),
    ):
        assert not re.search(r"@[a-z]+@", text)
        # Commands that are to be copied are on one line.
        assert all(line.count("`") % 2 == 0 for line in text.splitlines())


def test_files_that_the_pages_name_are_there(made: DeployedFolders) -> None:
    later = {"venv", "experiment.toml", "state/ledger.db", "secret/entropy.key", "state/nodes.txt"}
    for place in (made.coordinator, made.sites["oslo"]):
        named = re.findall(
            r"`(?:\./)?((?:\w+/)?[\w-]+\.(?:sh|toml|conf|key|crt|pub|db|txt)|\w+/)`",
            (place / "README.md").read_text(),
        )
        assert len(named) > 5
        for name in set(named) - later - {"node.key.pub", "site.toml"}:
            assert (place / name).exists(), name


def test_commands_are_the_scripts_of_the_folder(here: DeployedFolders, tmp_path: Path) -> None:
    assert set(commands(here.coordinator)) == {"superlink", "superexec", "register", "nodes", "run"}
    found = commands(here.sites["oslo"])
    assert set(found) == {"guard", "node"}
    assert found["guard"].argv == ["bash", str(here.sites["oslo"].resolve() / "start-guard.sh")]
    assert found["guard"].cwd == here.sites["oslo"].resolve()
    with pytest.raises(InvalidFile, match="neither a site's folder nor a coordinator's"):
        commands(tmp_path)


def test_a_certificate_is_renewed_and_sites_still_believe_it(here: DeployedFolders) -> None:
    tls, old = here.coordinator / "tls", (here.coordinator / "tls" / "server.pem").read_bytes()
    day = renew_certificate(here.coordinator, here.authority, days=500)
    assert (tls / "server.pem").read_bytes() != old
    assert certificates.valid_until(tls / "server.pem").date().isoformat() == day
    assert certificates.is_issued_by(tls / "server.pem", here.sites["oslo"] / "node" / "ca.crt")
    assert stat.S_IMODE((tls / "server.key").stat().st_mode) == 0o600


def test_a_site_can_make_its_own_keys_before_it_is_used_and_not_after(here: DeployedFolders) -> None:
    place = here.sites[OLAV]
    before, node = SiteFile.read(place), (place / "node" / "node.key").read_bytes()
    line = renew_keys(place)
    after = SiteFile.read(place)
    assert tomllib.loads(line) == {OLAV: after.colleagues[OLAV]}
    assert after.colleagues[OLAV] != before.colleagues[OLAV]
    assert sitefile.identity(place).public.hex() == after.colleagues[OLAV]
    assert (place / "node" / "node.key").read_bytes() != node
    assert (
        certificates.public_of(place / "node" / "node.key") == (place / "node" / "node.key.pub").read_bytes()
    )
    sitefile.entropy(place)
    with pytest.raises(Refused, match="has been in use"):
        renew_keys(place)
