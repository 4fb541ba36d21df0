"""The sdist and the wheel: what they hold, and what an installation without any extra can do."""

import os
import subprocess
import sys
import tarfile
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
# Python imports this module when it starts: every distribution beyond the core's dependencies is hidden.
HIDE = """
import sys
from importlib import metadata
from importlib.abc import MetaPathFinder

PACKAGES, DISTRIBUTIONS = {packages!r}, {distributions!r}


class Hidden(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in PACKAGES:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)


def from_name(name, known=metadata.Distribution.from_name):
    if name.lower().replace("_", "-") in DISTRIBUTIONS:
        raise metadata.PackageNotFoundError(name)
    return known(name)


metadata.Distribution.from_name = from_name
sys.meta_path.insert(0, Hidden())
"""


def distribution_name(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


def core_dependencies() -> set[str]:
    """Names of all distributions that `pip install tacit` brings, without extras."""
    found, waiting = set(), ["tacit"]
    while waiting:
        name = distribution_name(waiting.pop())
        if name not in found:
            found.add(name)
            wanted = map(Requirement, metadata.requires(name) or [])
            waiting += [
                one.name for one in wanted if one.marker is None or one.marker.evaluate({"extra": ""})
            ]
    return found


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The sdist of the tree, and the wheel that is built from it, as `pip install` builds it."""
    place = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "-d", str(place), "-t"]
    subprocess.run([*build, "sdist"], cwd=ROOT, check=True, capture_output=True)
    (sdist,) = place.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(place, filter="data")
    subprocess.run(
        [*build, "wheel"], cwd=place / sdist.name.removesuffix(".tar.gz"), check=True, capture_output=True
    )
    (wheel,) = place.glob("*.whl")
    return sdist, wheel


def test_the_wheel_holds_every_file_of_the_package_and_nothing_else(built):
    tracked = subprocess.run(["git", "ls-files", "src"], cwd=ROOT, check=True, capture_output=True, text=True)
    wanted = {name.removeprefix("src/") for name in tracked.stdout.splitlines() if (ROOT / name).exists()}
    with zipfile.ZipFile(built[1]) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
        (described,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        described = archive.read(described).decode()
    assert held == wanted
    assert "tacit/py.typed" in held
    assert f"Version: {metadata.version('tacit')}" in described
    assert "License-Expression: Apache-2.0" in described


def test_the_sdist_holds_what_a_packager_needs(built):
    with tarfile.open(built[0]) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        "pyproject.toml",
        "LICENSE",
        "README.md",
        "CHANGELOG.md",
        "CITATION.cff",
        "constraints.txt",
    } <= held
    assert {"src/tacit/__init__.py", "tests/test_packaging.py", "examples/survival.toml"} <= held
    assert not any(part in name for name in held for part in (".venv", "__pycache__", ".git/"))


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory):
    """The folder of the installed wheel, and variables that hide all but its dependencies from Python."""
    place = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(built[1]) as archive:
        archive.extractall(place)
    core = core_dependencies()
    owners = metadata.packages_distributions()
    hidden = {name for name, by in owners.items() if not core & set(map(distribution_name, by))} - {"tacit"}
    absent = {distribution_name(name) for by in owners.values() for name in by} - core
    (place / "sitecustomize.py").write_text(HIDE.format(packages=hidden, distributions=absent))
    return place, {**os.environ, "PYTHONPATH": str(place)}


def run(installed, folder, *words, code="from tacit.cli.app import main; main()"):
    return subprocess.run(
        [sys.executable, "-c", code, *words],
        cwd=folder, env=installed[1], capture_output=True, text=True, timeout=600,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("workload", ["survival", "functional"])
def test_an_installation_without_extras_does_the_whole_work(workload, installed, tmp_path):
    shorter = ("--set", "rounds=3") if workload == "survival" else ()
    for words in (
        ("new", workload),
        ("plan", f"{workload}.toml"),
        ("run", f"{workload}.toml", *shorter, "--out", "run"),
        ("show", "run"),
        ("report", "run", "-o", "report.html"),
        ("audit", "run"),
    ):
        found = run(installed, tmp_path, *words)
        assert found.returncode == 0, f"{words}: {found.stderr}"
    assert (tmp_path / "report.html").stat().st_size > 50_000
    package = run(installed, tmp_path, code="import tacit; print(tacit.__file__)")
    assert package.stdout.startswith(str(installed[0]))


def test_what_an_extra_serves_names_the_extra(installed, tmp_path):
    assert run(installed, tmp_path, "new", "control").returncode == 0
    found = run(installed, tmp_path, "plan", "control.toml")
    assert found.returncode == 2
    assert "pip install 'tacit[control]'" in found.stderr
