"""Cache of verdicts and traces in a folder, from which an interrupted run resumes.

A killed mutant stays killed as long as its module does not change: tests are added, not removed. Survivors
are tested again.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from threading import Lock
from typing import Any

from mutants.changes import Mutant
from mutants.running import KILLED, Verdict

VERDICTS = "verdicts.jsonl"


class VerdictCache:
    """Verdicts and traces of earlier runs.

    Args:
        place: The folder; None stores nothing.
        root: The tree that is tested.
    """

    def __init__(self, place: Path | None, root: Path) -> None:
        self._place, self._root, self._lock = place, root, Lock()
        self._killed: dict[str, dict[str, Any]] = {}
        if place is None:
            return
        place.mkdir(parents=True, exist_ok=True)
        if (place / VERDICTS).exists():
            # The last line may be incomplete.
            for line in (place / VERDICTS).read_text().split("\n")[:-1]:
                one = json.loads(line)
                if one["fate"] in KILLED:
                    self._killed[one["mutant"]] = one

    def killed(self, mutant: Mutant) -> Verdict | None:
        """Return the verdict on a mutant that was killed before; None for any other."""
        found = self._killed.get(self._name(mutant))
        return None if found is None else Verdict(mutant, found["fate"], found["detail"])

    def add(self, verdict: Verdict) -> None:
        """Store a verdict."""
        if self._place is not None:
            line = json.dumps(
                {"mutant": self._name(verdict.mutant), "fate": verdict.fate, "detail": verdict.detail}
            )
            with self._lock, (self._place / VERDICTS).open("a") as file:
                file.write(line + "\n")

    def trace(
        self,
        file: str,
        modules: Sequence[str],
        run: Callable[[Sequence[str], Sequence[str]], dict[str, Any]],
    ) -> dict[str, Any]:
        """Trace the tests of a file, unless the cache has a trace on the same code."""
        if self._place is None:
            return run([file], modules)
        digest = hashlib.sha256(json.dumps(modules).encode())
        for source in (*sorted((self._root / "src").rglob("*.py")), self._root / file):
            digest.update(str(source).encode() + b"\0" + hashlib.sha256(source.read_bytes()).digest())
        place = self._place / f"trace-{digest.hexdigest()[:16]}.json"
        if not place.exists():
            found = run([file], modules)
            unfinished = place.with_suffix(".part")
            unfinished.write_text(json.dumps(found))
            unfinished.replace(place)
        return json.loads(place.read_text())

    def _name(self, mutant: Mutant) -> str:
        source = (self._root / "src" / "tacit" / mutant.path).read_bytes()
        return json.dumps([hashlib.sha256(source).hexdigest()[:16], asdict(mutant)])
