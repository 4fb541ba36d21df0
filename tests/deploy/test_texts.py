"""Texts in the folders of a federation, byte for byte as they were before they became templates.

`python tests/deploy/test_texts.py` writes them anew, after a text was changed on purpose.
"""

import json
import math
import re
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tacit.deploy.folders import DeployedFolders, write
from tacit.deploy.site.config import CoordinatorFile, SiteLimits
from tacit.deploy.texts import render_folder
from tacit.errors import InvalidValue

DATA = Path(__file__).parent / "data" / "texts.json"
ROWS = {"kind": "held-records", "columns": ["age", "stage of disease", 'a "b" # c'], "time": "days"}
OPEN = SiteLimits(epsilon=math.inf, lifetime=math.inf, fewest=1, trusted=True)
LIMITED = SiteLimits(epsilon=0.5, lifetime=2.0, delta=1e-6, tasks=("cox-ph", "pc-hazard"), colluders=3)
PATHS = {"path": "data/a.parquet", "columns": {"age": "alder", "x y": "z"}}
HELD = ("held-curves", "held-worlds")
# What each federation is made of: the experiment, what sites say of their data, where, and their limits.
FEDERATIONS: dict[str, tuple[dict[str, Any], dict[str, Any], str, int, dict[str, SiteLimits]]] = {
    "hospitals": (
        {"name": "trial", "data": {**ROWS, "weight": "w", "fill": {"age": 50.0}}},
        {"oslo": PATHS, "Sankt Olav's": {}, 'Ærø "Ø" <b> & {{ x }} {% y %}': {}},
        "fed.example.org", 8443, {"oslo": LIMITED},
    ),
    "one machine": ({"name": "trial", "data": ROWS}, {"1": PATHS, "2": PATHS}, "127.0.0.1", 9091,
                    dict.fromkeys("12", OPEN)),
    "curves at a bare address": (
        {"data": {"kind": HELD[0], "path": "p"}}, {"a": {}}, "2001:db8::1", 9091, {},
    ),
    "worlds": ({"data": {"kind": HELD[1]}}, {"cave": {}}, "192.0.2.7", 1, {}),
}  # fmt: skip
# Keys and certificates, which are new in each folder.
SECRET = {".key", ".pub", ".crt", ".pem", ".secret"}


def texts(name: str, out: Path) -> dict[str, str]:
    """Texts of a federation by their paths; what differs from run to run is masked."""
    experiment, sites, host, port, limits = FEDERATIONS[name]
    made = write(experiment, sites, out, host=host, port=port, limits=limits)
    files = sorted(file for file in out.rglob("*") if file.is_file() and file.suffix not in SECRET)
    return {str(file.relative_to(out)): _masked(file.read_bytes().decode(), made, out) for file in files}


def _masked(text: str, made: DeployedFolders, out: Path) -> str:
    known = CoordinatorFile.read(made.coordinator)
    for name, key in {"the coordinator": known.key, **known.sites}.items():
        text = text.replace(key, f"<the key of {name}>")
    text = text.replace(str(out.resolve()), "<out>").replace(version("tacit"), "<version>")
    return re.sub(r"\d{4}-\d\d-\d\d", "<date>", text)


@pytest.mark.parametrize("name", FEDERATIONS)
def test_texts_are_what_they_were(name: str, tmp_path: Path) -> None:
    expected = json.loads(DATA.read_text())[name]
    found = texts(name, tmp_path / "out")
    assert sorted(found) == sorted(expected)
    for file, text in found.items():
        assert text == expected[file], file


@pytest.mark.parametrize("word", ["a b", "$(id)", "`id`", "a;b", "a\nb", "%h", "'a'", "a|b", "@", "a{b", "é"])
def test_nothing_that_bash_or_systemd_would_read_gets_into_scripts_and_units(word: str) -> None:
    common = {"port": 1, "inner": 2, "front": True, "extras": "flower", "until": "2030-01-01"}
    for slug, host in ((word, "example.org"), ("coordinator", word)):
        with pytest.raises(InvalidValue, match="letters, digits"):
            render_folder("coordinator", slug, host=host, **common)


if __name__ == "__main__":
    with TemporaryDirectory() as place:
        every = {name: texts(name, Path(place) / name.replace(" ", "-")) for name in FEDERATIONS}
    DATA.write_text(json.dumps(every, indent=1, ensure_ascii=False) + "\n")
