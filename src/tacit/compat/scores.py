"""Scores of estimators, which no promise covers."""

import warnings

from tacit.privacy.policy import Open, Privacy

# The attribute of an estimator that has warned; copies of it do not have it.
WARNED = "_has_warned_of_scores"


class UnprotectedScore(UserWarning):
    """A score that was computed from private records without protection."""


def warn_of_score(estimator: object, privacy: Privacy | Open | None) -> None:
    """Warn once for each estimator that its score is computed from records without protection.

    Args:
        estimator: The estimator.
        privacy: Its promise; an open run and a rehearsal promise nothing, and are not warned about.
    """
    if not isinstance(privacy, Privacy) or privacy.rehearsal or vars(estimator).get(WARNED):
        return
    warnings.warn(
        "score() is computed from these records without protection: no epsilon covers it, and it is in no "
        "statement and no ledger; for private records, do not publish it; score on public records, or choose "
        "by `tacit tune`, whose budget covers the choice",
        UnprotectedScore,
        stacklevel=3,
    )
    vars(estimator)[WARNED] = True
