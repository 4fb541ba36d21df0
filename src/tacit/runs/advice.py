"""Advice about records before anything is charged: in words, or where their owner alone reads it.

What may be right (a constant column, a site whose times are much shorter, copies of some records) is not
refused. Under a promise a run says the same words whatever the advice is, since it depends on records.
"""

from dataclasses import replace

from tacit.learning.task import TaskBase
from tacit.runtime.refusals import ADVICE, Withheld
from tacit.runtime.silence import suppress_warnings
from tacit.sites.federation import Federation

NONE = "Nothing in these records calls for advice."


@suppress_warnings()
def advice(task: TaskBase, federation: Federation, place: Withheld, *, private: bool) -> list[str]:
    """Return advice about records, or where it is kept for their owner.

    Args:
        task: The task, which knows what to look for.
        federation: The sites with their records; remote ones advise their own administrators.
        place: The destination of advice about private records.
        private: True if the records are private under a promise.
    """
    if federation.distant:
        return []
    found = task.advise(federation)
    if not private:
        return found
    kept = replace(place, ending=ADVICE)
    try:
        file = kept.write("\n".join(found or [NONE]))
    except OSError as error:
        return [f"advice about the records could not be written for their owner: {error.strerror}"]
    beside = place.data is not None and file.parent == place.data.parent.absolute()
    where = f"{file.name}, beside them" if beside else str(file)
    return [f"advice about the records is in {where}, which only its owner can read"]
