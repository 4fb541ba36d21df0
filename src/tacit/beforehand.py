"""What is refused, set aside or changed before a run charges anything."""

from collections.abc import Sequence

from tacit.aggregation.liars import Attack
from tacit.errors import InvalidValue, Refused
from tacit.keys import Key
from tacit.privacy.mechanism import Mechanism
from tacit.privacy.policy import Open, Privacy
from tacit.privacy.provenance import Provenance
from tacit.questions import Augmentation, opening_of, told
from tacit.sites.site import Federation
from tacit.sites.tables import Table
from tacit.task import Task


def left_of(
    augment: Augmentation | None, federation: Federation, privacy: Privacy | Open, provenance: Provenance
) -> Privacy | Open:
    """What is left of a promise once synthetic records have their part."""
    if augment is None:
        return privacy
    augment.check(federation, privacy, provenance)
    return augment.reserve(privacy)


def attacked(attack: Attack | None, federation: Federation, privacy: Privacy | Open, seed: int) -> Federation:
    """The federation with the records of liars as they want them."""
    if attack is None:
        return federation
    require_rehearsal(privacy)
    return attack.poisoned(federation, attack.names(list(federation), Key(seed)), Key(seed))


def require_rehearsal(privacy: Privacy | Open) -> None:
    """Refuse attacks where somebody is protected, and where nobody would see them."""
    if isinstance(privacy, Open):
        return
    if not privacy.rehearsal:
        raise Refused("[attack] is for rehearsals: give [privacy] rehearsal = true, or leave the attack out")
    if privacy.noise == "secure":
        raise Refused(
            '[attack] does not go with noise = "secure": liars send what they like, and nobody sees it. Use '
            'noise = "site" or "server", or leave the attack out'
        )


def require_scores(
    task: Task, federation: Federation, mechanism: Mechanism, tables: Sequence[Table | None]
) -> None:
    """Refuse models that cannot be protected, or scored on these records, before anything is charged."""
    opening = opening_of(task)
    task = task if opening is None else told(task, opening.stand_in)
    start = task.start(federation, Key(0))
    mechanism.fits(start.shape[-1])
    for table in tables:
        try:
            _ = task.score(start, table) if table is not None else {}
        except InvalidValue as error:
            few = f"the held-out records ({len(table or ())}) cannot be scored"
            raise InvalidValue(f"{few}: hold out more, or none ({error})") from error
