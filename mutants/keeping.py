"""Verdicts and traces that are kept in a folder, so that a call which was cut off can be gone on with.

A catch stands as long as the module is the same: tests are added, not taken away. Survivors are judged anew.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from threading import Lock
from typing import Any

from mutants.changes import Mutant
from mutants.running import Verdict

VERDICTS = "verdicts.jsonl"


class Kept:
    """What earlier calls found.

    Args:
        place: The folder; None keeps nothing.
        root: The tree that is tested.
    """

    def __init__(self, place: Path | None, root: Path) -> None:
        self._place, self._root, self._lock = place, root, Lock()
        self._caught: dict[str, dict[str, Any]] = {}
        if place is None:
            return
        place.mkdir(parents=True, exist_ok=True)
        if (place / VERDICTS).exists():
            # The last line may have been cut off.
            for line in (place / VERDICTS).read_text().split("\n")[:-1]:
                one = json.loads(line)
                if one["fate"] in ("caught", "endless"):
                    self._caught[one["mutant"]] = one

    def caught(self, mutant: Mutant) -> Verdict | None:
        """The verdict on a mutant that was caught before."""
        found = self._caught.get(self._name(mutant))
        return None if found is None else Verdict(mutant, found["fate"], found["detail"])

    def add(self, verdict: Verdict) -> None:
        """Write a verdict down."""
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
        """Trace the tests of a file, unless that was done on the same code."""
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
