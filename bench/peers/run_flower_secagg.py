"""Flower's SecAgg+ among all pairs, stage by stage through its own functions, timed; run by bench/secure.py.

Arguments: sites, dropouts, coordinates, repeats. Prints CPU seconds of one site and of the server, and the
upload, as JSON. The server's loop is that of `SecAggPlusWorkflow` without messages.
"""

import json
import sys
import time
from importlib import import_module
from importlib.metadata import version

import numpy as np
from flwr.common import bytes_to_ndarray, ndarrays_to_parameters
from flwr.common.secure_aggregation.crypto.shamir import combine_shares
from flwr.common.secure_aggregation.crypto.symmetric_encryption import generate_shared_key
from flwr.common.secure_aggregation.ndarrays_arithmetic import parameters_addition as plus
from flwr.common.secure_aggregation.ndarrays_arithmetic import parameters_mod, parameters_subtraction
from flwr.common.secure_aggregation.secaggplus_constants import Key
from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen
from flwr.supercore.primitives.asymmetric import bytes_to_private_key, bytes_to_public_key

# A function of the same name hides the module.
site = import_module("flwr.client.mod.secure_aggregation.secaggplus_mod")
RING, STEPS, CLIP = 2**32, 2**22, 8.0


def setup(sites: int) -> dict[str, int | float]:
    return {
        Key.SAMPLE_NUMBER: sites,
        Key.SHARE_NUMBER: sites,
        Key.THRESHOLD: 2 * sites // 3 + 1,
        Key.CLIPPING_RANGE: CLIP,
        Key.TARGET_RANGE: STEPS,
        Key.MOD_RANGE: RING,
        Key.MAX_WEIGHT: 1000.0,
    }


def unmasked(total, shares, keys, dropped):
    shapes = [part.shape for part in total]
    for owner, given in shares.items():
        secret = combine_shares(given)
        if owner not in dropped:
            total = parameters_subtraction(total, pseudo_rand_gen(secret, RING, shapes))
            continue
        for other in keys.keys() - {owner}:
            pair = generate_shared_key(bytes_to_private_key(secret), bytes_to_public_key(keys[other][0]))
            change = plus if owner > other else parameters_subtraction
            total = change(total, pseudo_rand_gen(pair, RING, shapes))
    return parameters_mod(total, RING)


def main(sites: int, dropouts: int, width: int) -> dict[str, float]:
    states = {number: site.SecAggPlusState(nid=number) for number in range(1, sites + 1)}
    for state in states.values():
        for name in ("rd_seed_share_dict", "sk1_share_dict", "ss2_dict", "public_keys_dict"):
            setattr(state, name, {})
    vector = np.random.default_rng(0).normal(size=width)
    spent = 0.0

    def timed(function, number, *arguments):
        nonlocal spent
        start = time.process_time()
        found = function(states[number], *arguments)
        spent += time.process_time() - start if number == 1 else 0
        return found

    keys = {
        number: (found[Key.PUBLIC_KEY_1], found[Key.PUBLIC_KEY_2])
        for number in states
        for found in [timed(site._setup, number, setup(sites))]
    }
    named = {str(number): pair for number, pair in keys.items()}
    sealed = {number: timed(site._share_keys, number, named) for number in states}
    there = [number for number in states if number <= sites - dropouts]
    masked = {}
    for number in there:
        inbox = [
            (sender, found[Key.CIPHERTEXT_LIST][found[Key.DESTINATION_LIST].index(number)])
            for sender, found in sealed.items()
            if sender != number
        ]
        senders, texts = zip(*inbox, strict=True)
        config = {Key.CIPHERTEXT_LIST: list(texts), Key.SOURCE_LIST: list(senders)}
        parameters = ndarrays_to_parameters([vector])
        found = timed(site._collect_masked_vectors, number, config, 1000, parameters)
        masked[number] = found[Key.MASKED_PARAMETERS]
    dead = [number for number in states if number not in there]
    asked = {Key.ACTIVE_NODE_ID_LIST: there, Key.DEAD_NODE_ID_LIST: dead}
    revealed = {number: timed(site._unmask, number, asked) for number in there}
    upload = sum(map(len, masked[1])) + sum(map(len, sealed[1][Key.CIPHERTEXT_LIST]))
    upload += sum(map(len, revealed[1][Key.SHARE_LIST])) + sum(map(len, keys[1]))

    start = time.process_time()
    total = [bytes_to_ndarray(part) for part in masked[1]]
    for number in there[1:]:
        total = plus(total, [bytes_to_ndarray(part) for part in masked[number]])
    total = parameters_mod(total, RING)
    shares = {number: [] for number in states}
    for found in revealed.values():
        for owner, share in zip(found[Key.NODE_ID_LIST], found[Key.SHARE_LIST], strict=True):
            shares[owner].append(share)
    total = unmasked(total, shares, keys, set(dead))
    server = time.process_time() - start
    found = total[1] / (STEPS - 1) * 2 * CLIP - CLIP * len(there)
    assert np.abs(found / len(there) - np.clip(vector, -CLIP, CLIP)).max() < 1e-4
    return {"site": spent, "server": server, "upload": upload}


if __name__ == "__main__":
    sites, dropouts, width, repeats = map(int, sys.argv[1:5])
    runs = [main(sites, dropouts, width) for _ in range(repeats)]
    best = {what: min(run[what] for run in runs) for what in ("site", "server", "upload")}
    print(json.dumps({"version": version("flwr"), **best}))
