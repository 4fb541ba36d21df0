"""The cost of secure aggregation for a site and for the server, against SecAgg+ of Flower.

100,000 numbers from each of 10 or 50 sites; all of them stay, or a fifth drops out after sharing its secrets,
which is the most expensive case for the server. Both sides round the same vectors to the same number of steps
and find the same mean of the remaining sites; ours also signs and verifies. The check counts the upload: 4
bytes for each number with ours, 8 with SecAgg+. A repetition runs all sites, and times one site and the
server. SecAgg+ runs stage by stage through Flower's own functions, among all pairs; the server's loop is that
of its `SecAggPlusWorkflow` without messages.
"""

import time
from functools import lru_cache
from itertools import count
from types import SimpleNamespace

import numpy as np

from bench.racing import Race, Work

WIDTH, STEPS, CLIP, RING = 100_000, 2**22, 8.0, 2**32
# How many sites there are, and how many of them fall silent.
SIZES = ((10, 0), (10, 2), (50, 10))
# Among fifty the server of the peer takes half a minute.
REPEATS = {10: 3, 50: 1}


def vectors(sites):
    draws = np.random.default_rng(sites)
    return {number: draws.normal(size=WIDTH) for number in range(1, sites + 1)}


def mean_of(total, there):
    """The mean of vectors, from the sum of the steps that they were rounded to."""
    return total / (STEPS - 1) * 2 * CLIP / there - CLIP


class Clock:
    """CPU and wall seconds, by who spent them."""

    def __init__(self):
        self.spent = {"site": (0.0, 0.0), "server": (0.0, 0.0)}

    def __call__(self, who, work, *given):
        """Do the work, and add its seconds to its party's; work without a party is not timed."""
        cpu, wall = time.process_time(), time.perf_counter()
        done = work(*given)
        if who is not None:
            so_far = self.spent[who]
            self.spent[who] = (so_far[0] + time.process_time() - cpu, so_far[1] + time.perf_counter() - wall)
        return done


def work_of(summed, part, sites, dropouts):
    """Repetitions of a sum, of which one part is timed; a sum that was checked or timed is not done again."""
    numbers = count()
    # What is slow only once is not a site's or the server's.
    summed(3, 0, 0)
    return Work(
        run=lambda: summed(sites, dropouts, 0)[0],
        seconds=lambda: summed(sites, dropouts, next(numbers))[1][part],
    )


def ours(part, sites, dropouts):
    return work_of(summed_by_us, part, sites, dropouts)


@lru_cache
def summed_by_us(sites, dropouts, repetition):
    from tacit.aggregation.secure import Coordinator, Identity, Member, Roster, Session
    from tacit.aggregation.secure.sealing import STAGES

    names = tuple(f"site {number:03}" for number in range(sites))
    session = Session(run="bench", round=repetition, names=names, width=WIDTH)
    identities = {name: Identity.fresh() for name in names}
    # A roster of its own, as at a real site: signatures that another has verified do not help it.
    rosters = {name: Roster.of(identities) for name in names}
    given, members = dict(zip(names, vectors(sites).values(), strict=True)), {}
    server, clock, silent = (
        Coordinator(session, Roster.of(identities)),
        Clock(),
        set(names[sites - dropouts :]),
    )

    def offer(name):
        members[name] = Member(session, name, identities[name], rosters[name])
        return members[name].offer()

    def mask(name):
        steps = np.rint((np.clip(given[name], -CLIP, CLIP) + CLIP) * ((STEPS - 1) / (2 * CLIP)))
        return members[name].mask(steps.astype(np.uint32), answers[name])

    steps = {
        "offer": (offer, server.collect_offers),
        "share": (lambda name: members[name].share(answers[name]), server.collect_shares),
        "mask": (mask, server.collect_vectors),
        "agree": (lambda name: members[name].agree(answers[name]), server.collect_signatures),
        "reveal": (lambda name: members[name].reveal(answers[name]), server.unmask),
    }
    answers, uploaded = dict.fromkeys(names, b""), 0
    for stage in STAGES:
        at_site, at_server = steps[stage]
        there = [name for name in answers if name not in silent or stage in ("offer", "share")]
        sent = {name: clock("site" if name == names[0] else None, at_site, name) for name in there}
        uploaded += len(sent[names[0]])
        answers = clock("server", at_server, sent)
    assert len(answers.survivors) == sites - dropouts
    assert uploaded < 4.1 * WIDTH
    return mean_of(answers.total.astype(float), sites - dropouts), clock.spent


def flower(part, sites, dropouts):
    return work_of(summed_by_flower, part, sites, dropouts)


def modules():
    """Import the used parts of Flower under short names."""
    from importlib import import_module

    secure = "flwr.common.secure_aggregation"
    arithmetic = import_module(f"{secure}.ndarrays_arithmetic")
    return SimpleNamespace(
        # A function of the same name hides the module.
        site=import_module("flwr.client.mod.secure_aggregation.secaggplus_mod"),
        common=import_module("flwr.common"),
        combine_shares=import_module(f"{secure}.crypto.shamir").combine_shares,
        shared_key=import_module(f"{secure}.crypto.symmetric_encryption").generate_shared_key,
        keys=import_module("flwr.supercore.primitives.asymmetric"),
        draw=import_module(f"{secure}.secaggplus_utils").pseudo_rand_gen,
        plus=arithmetic.parameters_addition,
        minus=arithmetic.parameters_subtraction,
        modulo=arithmetic.parameters_mod,
        Key=import_module(f"{secure}.secaggplus_constants").Key,
    )


@lru_cache
def summed_by_flower(sites, dropouts, repetition):
    use, clock, given = modules(), Clock(), vectors(sites)
    site, Key = use.site, use.Key
    states = {number: site.SecAggPlusState(nid=number) for number in given}
    for state in states.values():
        for name in ("rd_seed_share_dict", "sk1_share_dict", "ss2_dict", "public_keys_dict"):
            setattr(state, name, {})

    def at_site(function, number, *arguments):
        return clock("site" if number == 1 else None, function, states[number], *arguments)

    found = {number: at_site(site._setup, number, settings(Key, sites)) for number in states}
    keys = {number: (said[Key.PUBLIC_KEY_1], said[Key.PUBLIC_KEY_2]) for number, said in found.items()}
    named = {str(number): pair for number, pair in keys.items()}
    sealed = {1: at_site(site._share_keys, 1, named)}
    with shared_at_once(site):
        sealed |= {number: at_site(site._share_keys, number, named) for number in states if number != 1}
    there = [number for number in states if number <= sites - dropouts]
    masked = {}
    for number in there:
        parameters = use.common.ndarrays_to_parameters([given[number]])
        inbox = received(Key, sealed, number)
        masked[number] = at_site(site._collect_masked_vectors, number, inbox, 1000, parameters)
    silent = [number for number in states if number not in there]
    asked = {Key.ACTIVE_NODE_ID_LIST: there, Key.DEAD_NODE_ID_LIST: silent}
    revealed = {number: at_site(site._unmask, number, asked) for number in there}
    assert sum(map(len, masked[1][Key.MASKED_PARAMETERS])) > 8 * WIDTH
    total = clock("server", at_server, use, [masked[number] for number in there], revealed, keys, silent)
    return mean_of(total[1], len(there)), clock.spent


def settings(Key, sites):
    return {
        Key.SAMPLE_NUMBER: sites,
        Key.SHARE_NUMBER: sites,
        Key.THRESHOLD: 2 * sites // 3 + 1,
        Key.CLIPPING_RANGE: CLIP,
        Key.TARGET_RANGE: STEPS,
        Key.MOD_RANGE: RING,
        Key.MAX_WEIGHT: 1000.0,
    }


class shared_at_once:
    """Sites that are not timed share a secret as points of a constant: to put it together takes as long."""

    def __init__(self, site):
        self.site, self.kept = site, site.create_shares

    def __enter__(self):
        """Every share is the padded secret, with its number before it."""
        from Crypto.Util.Padding import pad

        self.site.create_shares = lambda secret, threshold, number: [
            place.to_bytes(4, "little") + pad(secret, 16) for place in range(1, number + 1)
        ]

    def __exit__(self, *_):
        """As before."""
        self.site.create_shares = self.kept


def received(Key, sealed, number):
    """Return the envelopes that the others have sealed for a site."""
    inbox = {
        sender: found[Key.CIPHERTEXT_LIST][found[Key.DESTINATION_LIST].index(number)]
        for sender, found in sealed.items()
        if sender != number
    }
    return {Key.CIPHERTEXT_LIST: list(inbox.values()), Key.SOURCE_LIST: list(inbox)}


def at_server(use, masked, revealed, keys, silent):
    """The sum, once all that hides it has been taken away."""
    Key = use.Key
    total = None
    for found in masked:
        vector = [use.common.bytes_to_ndarray(part) for part in found[Key.MASKED_PARAMETERS]]
        total = vector if total is None else use.plus(total, vector)
    total = use.modulo(total, RING)
    shares = {number: [] for number in keys}
    for found in revealed.values():
        for owner, share in zip(found[Key.NODE_ID_LIST], found[Key.SHARE_LIST], strict=True):
            shares[owner].append(share)
    shapes = [part.shape for part in total]
    for owner, given in shares.items():
        secret = use.combine_shares(given)
        if owner not in silent:
            total = use.minus(total, use.draw(secret, RING, shapes))
            continue
        private = use.keys.bytes_to_private_key(secret)
        for other in keys.keys() - {owner}:
            pair = use.shared_key(private, use.keys.bytes_to_public_key(keys[other][0]))
            change = use.plus if owner > other else use.minus
            total = change(total, use.draw(pair, RING, shapes))
    return use.modulo(total, RING)


RACES = [
    Race(
        name=f"{part}, {sites} sites of which {dropouts} drop out",
        group=f"a secure sum, {sites} sites of which {dropouts} drop out: {part}",
        given={"part": part, "sites": sites, "dropouts": dropouts},
        ours=ours,
        theirs={"Flower 1.41.0, SecAgg+": flower},
        # The other side rounds by chance, up or down.
        same=2e-5,
        repeats=REPEATS[sites],
    )
    for sites, dropouts in SIZES
    for part in ("site", "server")
]
