"""Rounds of secure aggregation over remote sites: the coordinator's requests, stage by stage."""

import secrets
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from tacit.engines.messages import NoReply, SignedMessage
from tacit.engines.secure.messages import products_of, sums_of
from tacit.engines.secure.server import multiply_columns, sum_groups
from tacit.learning.record import Fault
from tacit.learning.task import Updates
from tacit.privacy.mechanisms.secure_gram import SecureGram

if TYPE_CHECKING:
    from tacit.engines.remote import Remote
    from tacit.privacy.mechanisms.base import Mechanism
    from tacit.privacy.mechanisms.secure_sum import SecureSum

# The request to each site, as plain data and as arrays.
Questions = Mapping[str, tuple[dict[str, Any], bytes]]


def secure_round(
    remote: "Remote", asked: Questions, names: Sequence[str], width: int, mechanism: "Mechanism"
) -> Updates:
    """Return the server's view of a round: means over groups of sites, or products of all parties' columns.

    Args:
        remote: The engine that carries the stages.
        asked: The request to each site.
        names: The sites.
        width: The length of an update.
        mechanism: The mechanism of the sums.

    Raises:
        SecureAggregationFailed: Too few are left; nothing was unmasked.
    """
    number, session = getattr(mechanism, "number", 0), secrets.token_hex(8)
    run = f"{session} {remote.run_digest}"

    def talk(stage: str, sent: Mapping[str, bytes]) -> Mapping[str, bytes | NoReply]:
        # The work is sent once, in the first stage; later stages name the session.
        questions = {
            name: (
                "secret",
                {"stage": stage, "session": session, "said": said, "work": asked[name][0]},
                asked[name][1] if stage == "offer" else b"",
            )
            for name, said in sent.items()
        }
        return {name: _content(answer) for name, answer in remote.ask(questions, needed=False).items()}

    if isinstance(mechanism, SecureGram):
        products = products_of(mechanism, names, run=run, number=number)
        total = multiply_columns(products, remote.roster, talk)
        return Updates(("all parties",), mechanism.decode(total)[None])
    blind = cast("SecureSum", mechanism)
    sums = sums_of(blind, names, run=run, number=number, width=width)
    groups = blind.groups(names)
    found = sum_groups(groups, width, blind.colluders, number, run, remote.roster, talk)
    rows, faults = list[np.ndarray](), list[Fault]()
    for group, total in zip(groups, found, strict=True):
        rows.append(blind.mean_of(total.total, len(group)))
        faults += total.faults
    places = tuple(f"group {place}" for place in range(1, len(sums) + 1))
    return Updates(places, np.stack(rows), faults=tuple(faults))


def _content(answer: SignedMessage | NoReply) -> bytes | NoReply:
    if isinstance(answer, NoReply):
        return answer
    said = answer.content.get("said")
    return said if isinstance(said, bytes) else NoReply("schema", "its answer says nothing")
