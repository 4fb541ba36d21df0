"""Form of a data-protection impact assessment: the questions that only people can answer, and their answers.

The answers are the table `[dpia]` of a file; a question without an answer stays a blank field of the page.
"""

from dataclasses import dataclass
from pathlib import Path

from tacit.errors import InvalidFile
from tacit.runtime.contracts import fields_of
from tacit.runtime.tables import Table, construct, read_as

TABLE = "dpia"
# Question of each answer, as the page asks it.
QUESTIONS = {
    "purpose": "Purpose",
    "legal_basis": "Legal basis (Art. 6, Art. 9)",
    "people": "Whose data, how many people",
    "columns": "Columns",
    "special_categories": "Special categories, children",
    "necessity": "Necessity, proportionality",
    "retention": "Retention, deletion",
    "information": "How people are informed, and can object",
    "controller": "Controller, joint controllers (Art. 26)",
    "processors": "Processors, their contracts (Art. 28)",
    "transfers": "Transfers to third countries",
    "severity": "Likelihood and severity for people",
    "fairness": "Wrong or unfair predictions",
    "decisions": "Decisions by the model (Art. 22)",
    "measures": "Further measures",
    "advice": "Advice of the officer (Art. 35(2))",
    "views": "Views of the people concerned (Art. 35(9))",
    "consultation": "Prior consultation (Art. 36)",
    "decision": "Decision",
    "review": "Date of the next review",
}


@dataclass(frozen=True, kw_only=True)
class Answers:
    """Answers of the controller in a data-protection impact assessment; an empty one stays a blank field.

    Args:
        purpose: Purpose of the processing.
        legal_basis: Legal basis (Art. 6 and Art. 9 of the GDPR).
        people: Whose data are processed, and how many people there are.
        columns: Columns that are processed, where the run does not know them.
        special_categories: Special categories of data, and data of children.
        necessity: Necessity and proportionality of the processing.
        retention: Retention and deletion of the data and of the model.
        information: How people are informed, and how they can object.
        controller: The controller, or joint controllers (Art. 26).
        processors: Processors and their contracts (Art. 28).
        transfers: Transfers to third countries.
        severity: Likelihood and severity of the risks for people.
        fairness: Consequences of wrong or unfair predictions.
        decisions: Decisions that are based on the model (Art. 22).
        measures: Further measures against the risks.
        advice: Advice of the data-protection officer (Art. 35(2)).
        views: Views of the people concerned (Art. 35(9)).
        consultation: Prior consultation of the authority (Art. 36).
        decision: Decision about the processing.
        review: Date of the next review.
    """

    purpose: str = ""
    legal_basis: str = ""
    people: str = ""
    columns: str = ""
    special_categories: str = ""
    necessity: str = ""
    retention: str = ""
    information: str = ""
    controller: str = ""
    processors: str = ""
    transfers: str = ""
    severity: str = ""
    fairness: str = ""
    decisions: str = ""
    measures: str = ""
    advice: str = ""
    views: str = ""
    consultation: str = ""
    decision: str = ""
    review: str = ""

    def as_dict(self) -> dict[str, str]:
        """Return the answers that are not empty, by their keys."""
        return {name: answer for name, answer in fields_of(self, QUESTIONS).items() if answer.strip()}


def construct_answers(document: Table) -> Answers:
    """Construct the answers from the table `[dpia]` of a document; without one, all of them are empty."""
    return construct(Answers, TABLE, document.get(TABLE, {}))


def read_answers(path: Path) -> Answers:
    """Read the answers from the table `[dpia]` of a TOML file, such as an experiment file.

    Args:
        path: The file.

    Raises:
        InvalidFile: It cannot be read, has no table `[dpia]`, or a key there is not known.
    """

    def answers_of(document: Table, _folder: Path) -> Answers:
        if TABLE not in document:
            raise InvalidFile(f'[{TABLE}] is missing: give a table with answers, such as purpose = "..."')
        return construct_answers(document)

    return read_as(answers_of, path, ())
