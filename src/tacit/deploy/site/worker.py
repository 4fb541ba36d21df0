"""What a site does in an experiment that it has agreed to.

The coordinator names the work; what that is, how it is guarded and what its noise is drawn from, the site
knows by itself.
"""

import secrets
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import msgspec

from tacit.aggregation.defence.clustering import Choosing
from tacit.deploy.site.agreement import Agreement
from tacit.deploy.site.answer_log import Memory
from tacit.engines.adaptive_clipping import Packed
from tacit.engines.base import work
from tacit.engines.messages import Letter, Unreadable
from tacit.engines.record_count import NumberOfRecords
from tacit.engines.remote import Asking, width_of
from tacit.engines.secure.client import Joined, Seat
from tacit.engines.secure.messages import products_of, sums_of
from tacit.errors import Refused, between
from tacit.learning.task import Trains, of_round
from tacit.privacy.mechanisms.base import Mechanism
from tacit.privacy.mechanisms.secure_gram import BlindProducts
from tacit.privacy.mechanisms.secure_sum import BlindSites
from tacit.privacy.policy import Privacy
from tacit.runs.context import Setting
from tacit.runs.queries import closing_of, opening_of
from tacit.runtime.keys import Key, Part
from tacit.runtime.threads import one_thread

if TYPE_CHECKING:
    from torch import Tensor

    from tacit.aggregation.secure import Identity, Roster
    from tacit.aggregation.secure.dealing import Matrix
    from tacit.aggregation.secure.sealing import Vector

# The parts of a key's name that a coordinator may choose.
MOST_PARTS = 6


class Told(msgspec.Struct, frozen=True):
    """What a coordinator says of a piece of work."""

    run: str
    asking: Asking
    path: list[str | int]
    found: dict[str, Any]
    typical: float | None


class InStage(msgspec.Struct, frozen=True):
    """What a coordinator says in a stage of a sum in secret."""

    run: str
    stage: str
    session: str
    said: bytes
    work: dict[str, Any]


@dataclass(frozen=True, eq=False)
class Asked:
    """A piece of work, understood.

    Args:
        about: What it is, in words that do not depend on who asks.
        task: What is to be done.
        mechanism: What guards it.
        state: What it starts from.
        key: What it draws from.
        typical: How many records a site has on average, as far as that is known.
    """

    about: str
    task: Trains
    mechanism: Mechanism
    state: "Tensor"
    key: Key
    typical: float | None


@dataclass(frozen=True, eq=False)
class Worked:
    """What the site lets out."""

    row: "Tensor"
    diary: dict[str, list[float]]


class Working:
    """One experiment at one site.

    Args:
        agreement: What was agreed to.
        name: The site.
        entropy: The site's secret for this experiment.
    """

    def __init__(self, agreement: Agreement, name: str, entropy: bytes) -> None:
        self.agreement, self.name = agreement, name
        self._entropy = entropy
        # The one session that is under way: who begins another has left the one before.
        self._joined: dict[str, Joined] = {}

    def asked(self, letter: Letter) -> Asked:
        """What a letter asks for.

        Raises:
            Unreadable: It cannot be understood.
            Refused: It is no work of this experiment.
        """
        try:
            told = msgspec.convert(letter.content, type=Told)
        except msgspec.ValidationError as error:
            raise Unreadable("schema", f"the question cannot be read ({error})") from error
        setting, numbers = self._knowing(told), letter.arrays
        number = self._round(told)
        task, mechanism, about = self._named(told, setting, number)
        if told.asking == "round" and setting.packing is not None:
            task = Packed(task, setting.packing, _bounds(numbers, setting.packing.begun()))
        state = numbers.get("state")
        if state is None or str(state.dtype) != "torch.float64" or state.ndim not in (1, 2):
            raise Unreadable("schema", "the state is missing, or is no array of doubles")
        self._require_size(told)
        return Asked(about, task, mechanism, state, self._key(told), told.typical)

    def done(self, asked: Asked) -> Worked:
        """Do it: what comes out has gone through the mechanism."""
        cohort = replace(self.agreement.own.cohort([self.name]), typical=asked.typical)
        with one_thread():
            made = work(asked.task, asked.state, cohort, asked.mechanism, asked.key)
        diary = {what: list(values) for what, values in made.diary.get(self.name, {}).items()}
        # Nothing is told beside an update unless nothing was promised.
        return Worked(made.matrix[0].double(), {} if self._protected else diary)

    def in_secret(
        self, letter: Letter, identity: "Identity", roster: "Roster", memory: Memory
    ) -> dict[str, Any]:
        """What the site says in a stage of a sum that nobody sees the parts of.

        Args:
            letter: What the coordinator says in it.
            identity: The site's own.
            roster: Everybody's keys, from the site's own file.
            memory: Where it is written down that a round was joined, before the masked vector leaves.
        """
        try:
            told = msgspec.convert(letter.content, type=InStage)
        except msgspec.ValidationError as error:
            raise Unreadable("schema", f"the stage cannot be read ({error})") from error
        if told.stage == "offer":
            asked = self.asked(msgspec.structs.replace(letter, content={**told.work, "run": told.run}))
            mark, once = self.agreement.mark, secrets.token_hex(16)
            memory.require_new(mark, asked.about)

            def remember(occasion: str, terms: str) -> None:
                # Masks are forgotten with the process: no round is joined twice, whatever the terms.
                memory.keep(mark, occasion, f"{terms} {once}")

            seat = Seat(name=self.name, identity=identity, roster=roster, remember=remember)
            self._joined = {told.session: self._seated(asked, told.session, seat)}
        joined = self._joined.get(told.session)
        if joined is None:
            raise Refused("this site is in no such session: it was started again in between, or never joined")
        return {"said": joined.answer(told.stage, told.said)}

    def _seated(self, asked: Asked, session: str, seat: Seat) -> Joined:
        """The site's part in the sum that it expects by its own reckoning."""
        names, guard = list(self.agreement.setting.federation), asked.mechanism
        # Who was told another experiment adds other noise: with them there is no sum.
        run = f"{session} {self.agreement.bond}"
        if isinstance(guard, BlindProducts):
            products = products_of(guard, names, run=run, number=0)

            def rows() -> "tuple[Matrix, Vector]":
                found, own = guard.brought(names.index(self.name), self.done(asked).row.numpy())
                return found.astype("uint32"), own

            return Joined(products, seat, rows, occasion=asked.about)
        if not isinstance(guard, BlindSites):
            raise Refused("nothing is added up in secret in this experiment")
        width = width_of(asked.task, asked.state)
        sums = sums_of(guard, names, run=run, number=guard.number, width=width)
        own = next((each for each in sums if self.name in each.names), None)
        if own is None:
            raise Refused(f"{self.name} is in none of the sums of {asked.about}")
        return Joined(own, seat, lambda: guard.on_ring(self.done(asked).row), occasion=asked.about)

    @property
    def _protected(self) -> bool:
        return self.agreement.promised and not self.agreement.setting.provenance.allowed

    def _knowing(self, told: Told) -> Setting:
        """The setting, with what the opening question has found; nothing else of it can be changed."""
        setting = self.agreement.setting
        opening = opening_of(setting.task)
        if not told.found:
            return setting
        allowed = set[str]() if opening is None else set(opening.stand_in)
        strange = sorted(set(told.found) - allowed)
        if strange:
            raise Refused(f"{', '.join(strange)} cannot be found out by a question of this experiment")
        return setting.told(told.found)

    def _round(self, told: Told) -> int:
        """Which round it is, 0 for what is asked before or after all of them."""
        first, rounds = told.path[0] if told.path else 0, self.agreement.setting.rounds
        number = first if isinstance(first, int) else 0
        planned = 0 <= number <= rounds and (told.asking in ("round", "choosing")) == (number > 0)
        # A closing question may be asked in a round too, where it is free.
        free = told.asking == "closing" and 0 <= number <= rounds and not self.agreement.promised
        if not planned and not free:
            raise Refused(f"{told.asking} {number} is no part of an experiment of {rounds} rounds")
        if len(told.path) > MOST_PARTS:
            raise Unreadable("schema", "the name of its key is too long")
        return number

    def _named(self, told: Told, setting: Setting, number: int) -> tuple[Trains, Mechanism, str]:
        """The work by its name, and what guards it."""
        if told.asking == "count":
            if not setting.mechanism.counting([self.name]):
                raise Refused("how many records there are is not asked in this experiment")
            return NumberOfRecords(), setting.mechanism, "the number of records"
        if told.asking in ("opening", "closing"):
            question = (opening_of if told.asking == "opening" else closing_of)(setting.task)
            if question is None:
                raise Refused(f"there is no {told.asking} question in this experiment")
            guard = setting.training.asking(question, setting.mechanism).together()
            return question, guard, f"the {told.asking} question"
        task = of_round(setting.task, number, setting.rounds)
        if told.asking == "choosing":
            clusters = setting.clusters
            if clusters is None or clusters.by != "loss":
                raise Refused("nobody chooses among models in this experiment")
            task = cast(Any, Choosing(task, clusters.models))
        return task, setting.mechanism.of_round(number), f"round {number}"

    def _require_size(self, told: Told) -> None:
        """Refuse a size that is none; without one, sums would be divided by the site's own, a secret."""
        privacy, typical = self.agreement.experiment.privacy, told.typical
        by_record = isinstance(privacy, Privacy) and privacy.unit == "record"
        if typical is None and told.asking == "round" and by_record and self.agreement.own.layout == "rows":
            raise Refused("how many records a site has on average has to be said: its own is a secret")
        if typical is not None and not between(typical, 0, 1e15):
            raise Unreadable("schema", "how many records a site has on average is no number above 0")

    def _key(self, told: Told) -> Key:
        privacy = self.agreement.experiment.privacy
        path: tuple[Part, ...] = tuple(told.path)
        rehearsal = getattr(privacy, "rehearsal", True)
        return Key(self.agreement.experiment.seed, rehearsal, self._entropy, path)


def _bounds(numbers: "dict[str, Tensor]", like: "Tensor") -> "Tensor":
    """The bounds of a round; whatever they are, what is sent is no longer than 1."""
    found = numbers.get("bounds")
    fits = found is not None and found.shape == like.shape and found.dtype == like.dtype
    if found is None or not fits or not bool((found.isfinite() & (found > 0)).all()):
        raise Unreadable("schema", "the bounds of the round are missing, or are no numbers above 0")
    return found
