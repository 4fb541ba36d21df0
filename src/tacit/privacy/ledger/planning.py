"""The fixed plan of a run, written down on its ledger before the first charge."""

from collections.abc import Sequence

from tacit.privacy.accounting.release import Release
from tacit.privacy.ledger.chain import EVERYONE
from tacit.privacy.ledger.store import Ledger
from tacit.privacy.policy import Privacy


def begin_plan(
    ledger: Ledger,
    privacy: Privacy,
    releases: Sequence[Release],
    *,
    own: str,
    larger: str | None = None,
    resumed: bool = False,
) -> str:
    """Set the budget of a run and register its plan; return the name of the plan that it is charged under.

    Args:
        ledger: The ledger of the run.
        privacy: The promise.
        releases: Releases of the whole run if every site joins each round.
        own: The name of its plan; resumed with other releases it is another one.
        larger: The plan that was written down for several runs, if this is one of them.
        resumed: True if earlier charges are possible. A run that was begun by a version without
            plans goes on with what it was charged; otherwise the budget has to bear the whole plan.

    Raises:
        BudgetExhausted: The budget does not bear all of it; nothing was written.
    """
    # A ledger that came with a budget keeps it: a run may not raise what others have set.
    if not resumed and privacy.epsilon is not None and EVERYONE not in ledger.budgets():
        ledger.allow(epsilon=privacy.epsilon, delta=privacy.delta)
    if larger is None:
        ledger.register(releases, plan=own, resumed=resumed and ledger.has_former_run())
        return own
    if not resumed:
        ledger.check(releases, plan=larger)
    return larger
