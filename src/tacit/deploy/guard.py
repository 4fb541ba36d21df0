"""The guard of a site: it has the records, the keys and the ledger, and answers what may be answered.

It believes what the coordinator has signed, as a question; whether to answer is for the site's own file to
say, and what may leave is for the mechanism that it works out by itself. It has no network: questions come
in and answers go out through a door, carried by whoever may use it.
"""

import hmac
import re
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.deploy.agreement import Agreement, OverLimit, Unusable, agreed, digest_of, mark_of, pay
from tacit.deploy.memory import Memory
from tacit.deploy.sitefile import ANSWERS, LEDGER, SiteFile, entropy, identity
from tacit.deploy.working import Worked, Working
from tacit.engines.wire import COORDINATOR, Letter, Unreadable, digest, opened, packed, sealed
from tacit.errors import BudgetExhausted, InvalidFile, Refused, TacitError

if TYPE_CHECKING:
    from torch import Tensor

# What a coordinator may be told of a refusal: these speak of limits and questions, never of records.
TELLING = (BudgetExhausted, InvalidFile, OverLimit, Refused, Unreadable)
# Where experiments are kept that the site has agreed to.
EXPERIMENTS = Path("state") / "experiments"


def log(message: str) -> None:
    """A line of the site's log, with the time."""
    print(f"{datetime.now(UTC).isoformat(timespec='seconds')} {message}", file=sys.stderr, flush=True)


class Guard:
    """One site.

    Args:
        folder: The site's own folder.
        told: Where lines of its log go.
    """

    def __init__(self, folder: str | Path, told: Callable[[str], None] = log) -> None:
        from tacit.aggregation.secure import Roster

        self.folder, self.file = Path(folder), SiteFile.read(folder)
        self.told = told
        self._identity, self._entropy = identity(folder), entropy(folder)
        self._coordinator = Roster({COORDINATOR: bytes.fromhex(self.file.coordinator)})
        (self.folder / EXPERIMENTS).mkdir(parents=True, exist_ok=True)
        self._memory = Memory(self.folder / ANSWERS)
        self._working: dict[str, Working] = {}
        self._doing: Mapping[str, Callable[[Letter], tuple[dict[str, Any], Mapping[str, Tensor]]]] = {
            "hello": self._hello,
            "agree": self._agree,
            "work": self._work,
            "secret": self._secret,
        }

    def answer(self, content: bytes) -> bytes:
        """The answer to whatever has come, signed; a refusal says why, as far as that may be told."""
        try:
            letter = opened(content, self._coordinator, reader=self.file.name)
            if letter.about not in self._doing:
                raise Refused(f"{letter.about!r} is no question that is answered here")
            told, numbers = self._doing[letter.about](letter)
            return self._letter(letter.about, told, packed(numbers) if numbers else b"", digest(content))
        except Exception as error:
            # Whatever goes wrong with one question, the next one is heard.
            return self._letter("refused", self._refusal(error), b"", digest(content))

    def _letter(self, about: str, content: dict[str, Any], numbers: bytes, answers: bytes) -> bytes:
        name = self.file.name
        letter = Letter(
            writer=name, reader=COORDINATOR, about=about, content=content, numbers=numbers, answers=answers
        )
        return sealed(letter, self._identity)

    def _refusal(self, error: Exception) -> dict[str, Any]:
        """What the coordinator is told; everything is in the site's own log."""
        kind = type(error).__name__
        self.told(f"refused: {error}" if isinstance(error, TacitError) else f"failed: {kind}: {error}")
        if isinstance(error, Unusable):
            return {"why": "its records cannot be used as they are: its own log says why"}
        if not isinstance(error, TELLING):
            return {"why": "something went wrong at the site: its own log says what"}
        return {"why": str(error), "budget": isinstance(error, BudgetExhausted | OverLimit)}

    def _hello(self, letter: Letter) -> tuple[dict[str, Any], "Mapping[str, Tensor]"]:
        return {"site": self.file.name}, {}

    def _agree(self, letter: Letter) -> tuple[dict[str, Any], "Mapping[str, Tensor]"]:
        """Take part in an experiment: it is held against the site's limits, and paid for as a whole."""
        from tacit.privacy.ledger import Ledger

        text, run = _text(letter, "experiment"), _run(letter)
        mark = mark_of(text, run, self._entropy)
        found = agreed(text, run, self.file, self.folder, self._entropy)
        with Ledger(self.folder / LEDGER) as ledger:
            new = pay(found, ledger, self.file.limits)
        self._keep(f"{run}.toml", text)
        self._working[run] = self._begun(found)
        self.told(
            f"agreed to experiment {digest_of(text)}, run {run[:16]}: {found.told()}"
            + ("" if new else "; it was paid for before" * bool(found.price))
        )
        return {"told": found.told(), "mark": digest_of(mark)}, {}

    def _begun(self, found: Agreement) -> Working:
        # Draws of one experiment tell nothing about those of another.
        own = hmac.digest(self._entropy, b"draws\0" + found.mark.encode(), "sha256")
        return Working(found, self.file.name, own)

    def _keep(self, name: str, text: str) -> None:
        file = self.folder / EXPERIMENTS / name
        part = file.with_suffix(".part")
        part.write_text(text, encoding="utf-8")
        part.replace(file)

    def _at_work(self, letter: Letter) -> Working:
        """The experiment that a question belongs to: agreed to before, if need be before a restart."""
        run = _run(letter)
        if run not in self._working:
            file = self.folder / EXPERIMENTS / f"{run}.toml"
            if not file.is_file():
                raise Refused("this site has not agreed to that experiment")
            text = file.read_text(encoding="utf-8")
            found = agreed(text, run, self.file, self.folder, self._entropy)
            self._require_paid(found)
            self._working[run] = self._begun(found)
        return self._working[run]

    def _require_paid(self, found: Agreement) -> None:
        from tacit.privacy.ledger import Ledger

        with Ledger(self.folder / LEDGER) as ledger:
            if pay(found, ledger, self.file.limits):
                self.told("an experiment was agreed to and not on the ledger: it has been charged now")

    def _work(self, letter: Letter) -> tuple[dict[str, Any], "Mapping[str, Tensor]"]:
        """What the site lets out for a round or a question, once and for all."""
        working = self._at_work(letter)
        asked = working.asked(letter)
        if asked.mechanism.groups(list(working.agreement.setting.federation)) is not None:
            raise Refused("updates of this experiment are added up in secret: none leaves by itself")
        if working.agreement.promised:
            self._memory.once(working.agreement.mark, asked.about, letter.asked)
        found: Worked = working.done(asked)
        self.told(f"answered {asked.about} of run {_run(letter)[:16]}")
        return {"diary": found.diary} if found.diary else {}, {"row": found.row}

    def _secret(self, letter: Letter) -> tuple[dict[str, Any], "Mapping[str, Tensor]"]:
        """The site's part in a sum that nobody sees the parts of."""
        return self._at_work(letter).in_secret(letter, self._identity, self.file.roster, self._memory), {}


def _text(letter: Letter, name: str) -> str:
    found = letter.content.get(name)
    if not isinstance(found, str):
        raise Unreadable("schema", f"{name} is missing, or is no text")
    return found


def _run(letter: Letter) -> str:
    """What a run is known by; a file is named after it."""
    found = _text(letter, "run")
    if re.fullmatch("[0-9a-f]{1,64}", found) is None:
        raise Unreadable("schema", "the name of the run is not made of hexadecimal digits")
    return found
