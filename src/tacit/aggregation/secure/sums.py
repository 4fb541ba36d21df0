"""Secure sum with all its parties in this process: the same bytes as over a network, nothing skipped."""

from collections.abc import Iterable, Iterator, Mapping

from tacit.aggregation.secure.coordinator import Coordinator, SumResult
from tacit.aggregation.secure.member import Member
from tacit.aggregation.secure.sealing import Identity, Roster, Vector
from tacit.aggregation.secure.session import STAGES, Session, Stage
from tacit.errors import require, require_word


def secure_sum(
    vectors: Mapping[str, Vector],
    *,
    session: Session,
    identities: Mapping[str, Identity] | None = None,
    dropped: Mapping[str, Stage] | None = None,
) -> SumResult:
    """Add up the vectors of all sites that stay, without any party seeing one of another.

    Args:
        vectors: By site (width,).
        session: The session of the sum.
        identities: By site; fresh ones unless given.
        dropped: Sites that fall silent, and the stage from which on nothing is heard of them.

    Raises:
        SecureAggregationFailed: Fewer than the threshold stay, in some stage; nothing was unmasked.
    """
    names, silent = session.names, dict(dropped or {})
    require(set(vectors) == set(names), "vectors", sorted(vectors), f"one for each site: {list(names)}")
    require(silent.keys() <= set(names), "dropped", sorted(silent), f"sites of the session: {list(names)}")
    for name, stage in silent.items():
        require_word(f"dropped.{name}", stage, STAGES)
    own = {name: Identity.fresh() for name in names} if identities is None else identities
    roster = Roster.of({name: own[name] for name in names})
    members = {name: Member(session, name, own[name], roster) for name in names}
    server = Coordinator(session, roster)

    def heard(stage: Stage, sent: Iterable[str]) -> Iterator[str]:
        late = STAGES.index(stage)
        return (name for name in sent if name not in silent or late < STAGES.index(silent[name]))

    offers = server.collect_offers((name, members[name].offer()) for name in heard("offer", names))
    sealed = server.collect_shares(
        (name, members[name].share(offers[name])) for name in heard("share", offers)
    )
    survivors = server.collect_vectors(
        (name, members[name].mask(vectors[name], sealed[name])) for name in heard("mask", sealed)
    )
    signed = server.collect_signatures(
        (name, members[name].agree(survivors[name])) for name in heard("agree", survivors)
    )
    return server.unmask((name, members[name].reveal(signed[name])) for name in heard("reveal", signed))
