import hashlib
import hmac
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import ECB
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tacit.errors import InvalidValue
from tacit.runtime import keys
from tacit.runtime.keys import LONG, ZEROS, Key, Secret, _hmac, bind_rows, random_words, signed_uniform

ENTROPY = bytes(range(32))
# Statistical tests below are of fixed draws; this is the share of seeds on which each would raise an alarm.
FALSE_ALARM = 1e-6


def public(key: Key) -> list[float]:
    return key.generator().random(4).tolist()


def hidden(key: Key, *inputs: bytes) -> list[float]:
    return key.secret(*inputs).uniform((4,)).tolist()


def flood(stream: Secret, length: int) -> bytes:
    return random_words([stream], length // 8).tobytes()


def constant_flood(byte: bytes) -> object:
    """In place of `_cipher`."""

    def fill(places: list[bytes], room: memoryview) -> None:
        room[:] = byte * len(room)

    return lambda _run: fill


def constant_stream(byte: bytes) -> type:
    class Stream:
        def __init__(self, _seed: bytes) -> None:
            pass

        def digest(self, length: int) -> bytes:
            return byte * length

    return Stream


def test_the_same_name_gives_the_same_draws():
    assert public(Key(7) / 3 / "oslo" / "batches") == public(Key(7) / 3 / "oslo" / "batches")


NAMES = [
    Key(7),
    Key(8),
    Key(7) / 1,
    Key(7) / "1",
    Key(7) / "a" / "b",
    Key(7) / "b" / "a",
    Key(7) / "ab",
    Key(7) / "a" / "",
    Key(7) / "" / "a",
    Key(7) / "a",
    Key(7) / "a/b",
    Key(7) / 1 / 2,
    Key(7) / 12,
    Key(7) / "str:a",
    Key(7) / "é",
    Key(71),
]


@pytest.mark.parametrize("rehearsal", [True, False])
def test_another_name_gives_other_draws(rehearsal):
    assert len({tuple(public(key)) for key in NAMES}) == len(NAMES)
    secrets = {tuple(hidden(Key(key.seed, rehearsal, ENTROPY, key.path))) for key in NAMES}
    assert len(secrets) == len(NAMES)


parts = st.one_of(st.integers(), st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=5))


@settings(deadline=None, max_examples=100)
@given(st.lists(parts, max_size=4), st.lists(parts, max_size=4))
def test_two_names_share_draws_exactly_when_they_are_one_name(one, other):
    first, second = Key(0, path=tuple(one)), Key(0, path=tuple(other))
    assert (public(first) == public(second)) == (one == other)


def test_a_generator_can_be_asked_for_again():
    key = Key(7) / "weights"
    assert key.generator().random() == key.generator().random()


def test_draws_do_not_depend_on_who_asks_first():
    root = Key(7)
    forwards = [public(root / site) for site in ("oslo", "bergen")]
    backwards = [public(root / site) for site in ("bergen", "oslo")]
    assert forwards == backwards[::-1]


def test_draws_of_one_name_do_not_move_those_of_another():
    root = Key(7)
    before = public(root / "oslo")
    (root / "bergen").generator().random(1000)
    hidden(root / "oslo")
    assert public(root / "oslo") == before


def test_a_name_leaves_its_parent_as_it_was():
    root = Key(7)
    before = public(root)
    _ = root / "child"
    assert root.path == ()
    assert public(root) == before


def test_the_two_doors_share_no_draws():
    rehearsal = Key(7, rehearsal=True)
    assert public(rehearsal) != hidden(rehearsal)


def test_two_runs_with_one_seed_have_different_secrets():
    assert hidden(Key(7)) != hidden(Key(7))


def test_two_rehearsals_with_one_seed_have_the_same_secrets():
    assert hidden(Key(7, rehearsal=True)) == hidden(Key(7, rehearsal=True))


def test_the_same_entropy_and_inputs_repeat_a_secret():
    first, second = Key(7, entropy=ENTROPY) / 3, Key(7, entropy=ENTROPY) / 3
    assert hidden(first, b"rows") == hidden(second, b"rows")


def test_a_name_keeps_the_entropy_of_the_run():
    key = Key(7)
    assert (key / 3 / "oslo").entropy == key.entropy


@pytest.mark.parametrize("other", [(b"rowz",), (b"rows", b""), (b"", b"rows"), (b"ro", b"ws"), ()], ids=repr)
def test_other_inputs_give_other_secrets(other):
    key = Key(7, entropy=ENTROPY)
    assert hidden(key, b"rows") != hidden(key, *other)


def test_an_input_is_no_part_of_a_name():
    key = Key(7, entropy=ENTROPY)
    assert hidden(key / "rows") != hidden(key, b"str:rows")
    assert hidden(key / "rows", b"more") != hidden(key, b"str:rows", b"more")


def test_secrets_of_different_inputs_are_unrelated():
    count = 50_000
    key = Key(7, entropy=ENTROPY)
    one, other = key.secret(b"one").uniform((count,)), key.secret(b"two").uniform((count,))
    bound = stats.norm.isf(FALSE_ALARM / 2) / np.sqrt(count)
    assert abs(np.corrcoef(one, other)[0, 1]) < bound
    # The difference of unrelated uniforms has the triangular law; a shifted copy would not.
    assert stats.kstest(one - other, stats.triang(0.5, loc=-1, scale=2).cdf).pvalue > FALSE_ALARM


def longer(**changed: int) -> bytes:
    """Some megabyte, with one byte of it changed."""
    numbers = bytearray(np.arange(150_000, dtype=np.float64).tobytes())
    for place, value in changed.items():
        numbers[int(place.removeprefix("at_"))] ^= value
    return bytes(numbers)


def test_long_inputs_give_other_secrets_when_any_byte_is_another():
    key, whole = Key(7, entropy=ENTROPY), longer()
    others = [longer(at_0=1), longer(at_700_000=128), longer(at_1_199_999=1), whole[:-1], whole + b"\0"]
    # As many of them, in another order; and the same, cut elsewhere.
    apart = [(whole[8:16] + whole[:8] + whole[16:],), (whole[:600_000], whole[600_000:]), (whole, whole), ()]
    told = [hidden(key, whole), *(hidden(key, other) for other in others), *(hidden(key, *a) for a in apart)]
    assert len({tuple(draws) for draws in told}) == len(told)
    assert hidden(key, whole) == told[0]
    assert hidden(Key(7), whole) != told[0]


@pytest.mark.parametrize("length", [0, 1, LONG, LONG + 1, 5000])
def test_what_a_secret_hangs_on_is_its_name_and_the_digests_of_its_inputs(length):
    """Written out once more: a long input is its length and its tag under GCM, a short one itself."""
    given = bytes(range(256)) * 20
    name = (5).to_bytes(8, "big") + b"int:7"
    tag = AESGCM(hmac.digest(ENTROPY, b"inputs", "sha256")).encrypt(bytes(12), b"", given[:length])
    told = length.to_bytes(8, "big") + (tag if length > LONG else given[:length])
    seed = hmac.digest(ENTROPY, b"secret\1" + name + told, "sha256")
    assert hidden(Key(7, entropy=ENTROPY), given[:length]) == Secret(seed).uniform((4,)).tolist()


@pytest.mark.parametrize("entropy", [ENTROPY, bytes(64), bytes(range(100))], ids=len)
def test_the_hash_is_that_of_the_library(entropy):
    for said in (b"", b"rows", bytes(1000)):
        assert _hmac(entropy)(said) == hmac.digest(entropy, said, "sha256")


def test_what_is_too_long_for_a_digest_is_hashed_as_it_is(monkeypatch):
    monkeypatch.setattr("tacit.runtime.keys.LONGEST", 1000)
    key = Key(7, entropy=ENTROPY)
    told = [tuple(hidden(key, bytes(length))) for length in (999, 1000, 1001, 1002)]
    assert len(set(told)) == 4


def test_a_rehearsal_ignores_its_inputs():
    key = Key(7, rehearsal=True)
    assert hidden(key, b"one") == hidden(key, b"two")


def test_a_rehearsal_ignores_its_entropy():
    assert hidden(Key(7, rehearsal=True, entropy=ENTROPY)) == hidden(Key(7, rehearsal=True))


def test_a_secret_is_not_the_secret_of_the_rehearsal():
    assert hidden(Key(7, entropy=ENTROPY)) != hidden(Key(7, rehearsal=True))


def test_two_draws_from_one_stream_never_overlap():
    stream = Key(7, rehearsal=True).secret()
    draws = np.concatenate([stream.uniform((1000,)) for _ in range(5)])
    assert len(np.unique(draws)) == draws.size


def test_a_stream_is_uniform():
    draws = Key(7, rehearsal=True).secret().uniform((200_000,))
    assert stats.kstest(draws, "uniform").pvalue > FALSE_ALARM


def test_a_draw_takes_the_shape_asked_for():
    stream = Secret(b"seed")
    assert stream.uniform((2, 3)).shape == (2, 3)
    assert stream.uniform((0,)).shape == (0,)
    assert stream.uniform(()).shape == ()


@pytest.mark.parametrize("byte", [b"\x00", b"\xff"], ids=["zeros", "ones"])
def test_a_draw_lies_strictly_inside_even_when_the_stream_is_constant(monkeypatch, byte):
    monkeypatch.setattr(hashlib, "shake_128", constant_stream(byte))
    draws = Secret(b"seed").uniform((5,))
    assert (draws > 0).all()
    assert (draws < 1).all()


def test_draws_are_those_of_shake_under_the_name():
    # Written out once more, so that a faster way to the same draws stays one.
    name = b"".join(len(part).to_bytes(8, "big") + part for part in (b"int:7", b"int:3", b"str:oslo"))
    seed = hmac.digest(ENTROPY, b"secret\0" + name, "sha256")
    block = hashlib.shake_128(seed + bytes(8)).digest(32)
    words = [int.from_bytes(block[place : place + 8], "little") for place in range(0, 32, 8)]
    expected = [((word >> 12) + 0.5) / 2**52 for word in words]
    assert hidden(Key(7, entropy=ENTROPY) / 3 / "oslo") == expected


def test_floods_are_those_of_aes_under_the_run_from_the_place_of_the_name():
    # Block by block, by another mode: what counter mode is said to be (SP 800-38A).
    name = b"".join(len(part).to_bytes(8, "big") + part for part in (b"int:7", b"str:oslo"))
    seed = hmac.digest(ENTROPY, b"secret\0" + name, "sha256")
    cipher = Cipher(AES256(hmac.digest(ENTROPY, b"noise", "sha256")), ECB()).encryptor()
    first = int.from_bytes(seed[:16], "big")
    expected = [cipher.update(((first + place) % 2**128).to_bytes(16, "big")) for place in range(5)]
    stream = (Key(7, entropy=ENTROPY) / "oslo").secret()
    # What is left of a block is left out, so that no byte comes twice.
    assert flood(stream, 24) == b"".join(expected)[:24]
    assert flood(stream, 48) == b"".join(expected)[32:]


def test_a_flood_goes_round_at_the_end_of_all_blocks():
    stream = Secret(b"\xff" * 16, ENTROPY)
    assert flood(stream, 32)[16:] == flood(Secret(bytes(16), ENTROPY), 16)


@pytest.mark.parametrize(
    "key", [Key(7, rehearsal=True), Key(7, entropy=ENTROPY)], ids=["rehearsal", "secret"]
)
def test_a_flood_is_uniform_and_unrelated_to_other_draws(key):
    count = 200_000
    words = np.frombuffer(flood(key.secret(), 8 * count), dtype="<u8")
    assert stats.kstest(words * 2.0**-64, "uniform").pvalue > FALSE_ALARM
    ones = int(np.bitwise_count(words).sum())
    assert stats.binomtest(ones, 64 * count).pvalue > FALSE_ALARM
    assert not set(words.tolist()) & set(key.secret().words((count,)).tolist())


def test_floods_of_two_runs_names_or_inputs_differ():
    root = Key(7, entropy=ENTROPY)
    pairs = [(root, ()), (Key(7), ()), (root / "oslo", ()), (root, (b"rows",)), (Key(7, rehearsal=True), ())]
    assert len({flood(key.secret(*inputs), 64) for key, inputs in pairs}) == len(pairs)


@pytest.mark.parametrize("count", [1, 5, ZEROS // 8, ZEROS // 4 + 3])
def test_a_flood_of_many_streams_is_what_each_gives_alone_and_goes_on(count):
    names = [Key(7, entropy=ENTROPY), Key(7, entropy=ENTROPY) / 1, Key(8), Key(7, rehearsal=True)]
    many, alone = ([key.secret(b"rows") for key in names] for _ in range(2))
    for _ in range(2):
        together = random_words(many, count)
        assert (together == np.concatenate([random_words([stream], count) for stream in alone])).all()
        assert len(np.unique(together)) == together.size


@pytest.mark.parametrize("width", [3, 200])
@pytest.mark.parametrize("rehearsal", [True, False])
def test_many_keys_bound_to_rows_are_what_each_is_alone(rehearsal, width):
    root, rows = Key(7, rehearsal=rehearsal), np.arange(4.0 * width).reshape(4, width)
    for names in ([root / site for site in range(4)], [root, root / "a", Key(8), root / 1 / "b"]):
        together = bind_rows(names, rows, b"law", b"")
        alone = [key.secret(row.tobytes(), b"law", b"") for key, row in zip(names, rows, strict=True)]
        assert [flood(one, 64) for one in together] == [flood(one, 64) for one in alone]


def test_floods_in_several_threads_are_what_they_are_in_one():
    root, length = Key(7, entropy=ENTROPY), 80_000
    with ThreadPoolExecutor(4) as threads:
        together = list(threads.map(lambda site: flood((root / site).secret(), length), range(40)))
    assert together == [flood((root / site).secret(), length) for site in range(40)]


def test_seeds_that_are_equal_and_of_two_types_are_two_names_whoever_came_first():
    for seed in (918_273, 918_274):
        order = (seed, np.int64(seed)) if seed % 2 else (np.int64(seed), seed)
        draws = {type(one): hidden(Key(one, rehearsal=True)) for one in order}
        assert draws[int] == hidden(Key(seed, rehearsal=True)) != draws[np.int64]


def test_a_name_is_the_same_whether_it_grew_or_was_given():
    grown, given = Key(7, entropy=ENTROPY) / 3 / "oslo", Key(7, entropy=ENTROPY, path=(3, "oslo"))
    assert hidden(grown) == hidden(given)
    # A name that is exchanged keeps nothing of the one before.
    assert hidden(replace(grown, path=("bergen",))) == hidden(Key(7, entropy=ENTROPY) / "bergen")


def streams(count: int) -> list[Secret]:
    return [(Key(7, rehearsal=True) / number).secret() for number in range(count)]


def test_many_streams_at_once_give_what_each_gives_alone():
    signs, numbers = signed_uniform(streams(5), 12)
    alone = [signed_uniform([stream], 12) for stream in streams(5)]
    assert np.signbit(signs).tolist() == [np.signbit(sign)[0].tolist() for sign, _ in alone]
    assert numbers.tolist() == [number[0].tolist() for _, number in alone]


class Scripted(Secret):
    """A stream of these blocks."""

    def __init__(self, *blocks: list[int]) -> None:
        super().__init__(b"scripted")
        self.blocks = [np.array(words, dtype="<u8").tobytes() for words in blocks]

    def skip(self, length: int) -> bytes:
        assert len(self.blocks[0]) == length
        return self.blocks.pop(0)


def copied(places: list[bytes], room: memoryview) -> None:
    room[:] = b"".join(places)


def test_a_number_near_zero_is_drawn_finer_from_its_own_stream_alone(monkeypatch):
    monkeypatch.setattr(keys, "_cipher", lambda _run: copied)
    calm, rare = Scripted([2**62, 2**61]), Scripted([2**63 + 5, 2**62], [2**63, 17])
    signs, numbers = signed_uniform([calm, rare], 2)
    assert np.signbit(signs).tolist() == [[False, False], [True, False]]
    assert numbers.tolist() == [[0.5, 0.25], [(5 + (2**63 + 0.5) * 2.0**-64) * 2.0**-63, 0.5]]
    assert not calm.blocks
    assert not rare.blocks


@pytest.mark.parametrize("byte", [b"\x00", b"\x7f", b"\xff"], ids=["zeros", "positive", "ones"])
def test_a_tail_lies_strictly_inside_even_when_the_stream_is_constant(monkeypatch, byte):
    monkeypatch.setattr(keys, "_cipher", constant_flood(byte))
    numbers = signed_uniform([Secret(b"seed"), Secret(b"seed")], 5)[1]
    assert (numbers > 0).all()
    assert (numbers < 1).all()


def test_a_key_never_shows_its_entropy():
    key = Key(7, entropy=ENTROPY) / "oslo"
    for shown in (repr(key), str(key), f"{key}", repr([key]), repr(key.secret(b"rows"))):
        assert ENTROPY.hex() not in shown
        assert repr(ENTROPY)[2:-1] not in shown
        assert "entropy" not in shown


def test_short_entropy_is_refused_without_being_shown():
    with pytest.raises(InvalidValue, match="31 bytes") as caught:
        Key(7, entropy=b"x" * 31)
    assert "xxx" not in str(caught.value)


def test_drawing_leaves_the_global_random_states_alone():
    numpy_before, torch_before = np.random.get_state()[1].copy(), torch.get_rng_state()
    public(Key(7))
    hidden(Key(7), b"rows")
    assert (np.random.get_state()[1] == numpy_before).all()
    assert torch.equal(torch.get_rng_state(), torch_before)


def test_the_global_random_states_leave_draws_alone():
    before = public(Key(7)), hidden(Key(7, rehearsal=True))
    with torch.random.fork_rng():
        torch.manual_seed(1)
        assert (public(Key(7)), hidden(Key(7, rehearsal=True))) == before
    state = np.random.get_state()
    np.random.seed(1)
    assert (public(Key(7)), hidden(Key(7, rehearsal=True))) == before
    np.random.set_state(state)
