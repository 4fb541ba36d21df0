"""Hostile content of files: values, names and damage, each drawn by a seed."""

import os
import shutil
from pathlib import Path
from random import Random

# As TOML writes them; JSON reads most of them too.
LITERALS = (
    "-1", "0", "1", "2", "-0.0", "1e308", "-1e308", "1e-300", "1e400", "nan", "inf", "-inf", "5e-324",
    "0.5", "9223372036854775807", "9223372036854775808", "-9223372036854775809", "1000000000", "5000000",
    "9" * 5000, "0x7fffffffffffffff", "true", "false", '""', '" "', "[]", "{}", "[[]]", "[0]", "[-1]",
    "[1e9]", "[1000000000]", "[1, 2", '["a", 1]', "[true]", "{ a = 1 }", "{ kind = 3 }", "1979-05-27",
    "1979-05-27T07:32:00Z", "07:32:00", "[" * 5000 + "]" * 5000, "[" * 200 + "]" * 200,
    "{a=" * 2000 + "1" + "}" * 2000, "[" + "1," * 20000 + "]",
    '["' + '","'.join(f"s{number}" for number in range(50_000)) + '"]', "'''\nseveral\nlines'''",
)  # fmt: skip
WORDS = (
    "", " ", "a", "site", "record", "gaussian", "none", "null", "NaN", "../../../etc/passwd", "/dev/zero",
    "/dev/stdin", "/proc/self/mem", ".", "..", "~", "a/b", "a\\b", "\x1b[2J\x1b]0;gone\x07", "\x1b[31mred",
    "\x00", "two\nlines", "\r", "\x9b31m", "\x7f", "\u202egnp.exe", "é" * 40, "x" * 100_000, "💥", "a\u0301",
    "-", "--help", "=", "{0}", "%s", "<b>x</b>", "evil:Task", "os:system", "evil", "json:loads", "$(id)",
    "`id`", "'; DROP TABLE rows; --", "1e5", "true", "[1]",
)  # fmt: skip
KEYS = (
    "seed", "rounds", "baselines", "data.records", "data.features", "data.kind", "data.design",
    "data.held_out", "sites.count", "sites.alpha", "sites.kind", "sites.names", "task.kind", "task.hidden",
    "task.cuts", "task.steps", "task.sample", "task.lr", "task.horizon", "privacy.unit", "privacy.epsilon",
    "privacy.delta", "privacy.clip", "privacy.noise", "privacy.noise_multiplier", "privacy.participation",
    "privacy.rehearsal", "aggregation.kind", "server.kind", "server.lr", "stop.patience", "clusters.count",
    "engine.kind", "attack.liars", "name", "deep.er.still",
)  # fmt: skip


def quoted(word: str) -> str:
    """A word as a basic string of TOML."""
    plain = word.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(sign if " " <= sign != "\x7f" else f"\\u{ord(sign):04x}" for sign in plain) + '"'


def literal(chance: Random) -> str:
    """A value."""
    return chance.choice(LITERALS) if chance.random() < 0.7 else quoted(chance.choice(WORDS))


def damaged_text(text: str, chance: Random) -> str:
    """A file of keys and values with one thing wrong."""
    lines = text.splitlines()
    set_ones = [place for place, line in enumerate(lines) if " = " in line or "=" in line.split("#")[0]]
    if not set_ones:
        return text + literal(chance)
    place, what = chance.choice(set_ones), chance.random()
    key = lines[place].split("=")[0].rstrip()
    if what < 0.6:
        lines[place] = f"{key} = {literal(chance)}"
    elif what < 0.7:
        lines[place] = f"{quoted(chance.choice(WORDS))} = {literal(chance)}"
    elif what < 0.76:
        lines.insert(place, f"{chance.choice(KEYS)} = {literal(chance)}")
    elif what < 0.82:
        del lines[place]
    elif what < 0.87:
        lines.insert(chance.randrange(len(lines)), chance.choice(lines))
    elif what < 0.92:
        lines.insert(place, f"[{quoted(chance.choice(WORDS))}]")
    else:
        tables = ("data", "task", "tune", "study", "attack", "clusters", "stop", "nothing")
        lines = lines[:place] if what < 0.96 else [*lines, f"[{chance.choice(tables)}]"]
    return "\n".join(lines) + "\n"


def damaged_bytes(content: bytes, chance: Random) -> bytes:
    """Any file with one thing wrong."""
    place = chance.randrange(len(content) + 1)
    before, after = content[:place], content[place:]
    odd = (b"\x00", b"\x1b[2J", b"\xff\xfe", b"\xc3\x28", b"[" * 5000, b"9" * 5000)
    return chance.choice(
        (
            b"",
            before,
            _flipped(content, chance),
            before + chance.randbytes(chance.choice([1, 8, 500])) + after,
            before + after[chance.choice([1, 16, 4096]) :],
            before + bytes(100) + after[100:],
            b"\xef\xbb\xbf" + content,
            content.replace(b"\n", b"\r\n"),
            content + before,
            before + chance.choice(odd) + after,
        )
    )


def _flipped(content: bytes, chance: Random) -> bytes:
    found = bytearray(content)
    for _ in range(chance.choice([1, 1, 4, 64]) if content else 0):
        found[chance.randrange(len(found))] ^= 1 << chance.randrange(8)
    return bytes(found)


def replace_oddly(path: Path, chance: Random) -> None:
    """Put something in the place of a file that is none, or none that can be read to its end."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    what = chance.randrange(6)
    if what == 0:
        os.mkfifo(path)
    elif what == 1:
        path.mkdir()
    elif what == 2:
        path.symlink_to(path)
    elif what == 3:
        path.symlink_to("/dev/zero")
    elif what == 4:
        path.symlink_to("/dev/null")


def damage(path: Path, chance: Random) -> None:
    """One thing wrong with a file, in its contents or in what it is."""
    what = chance.random()
    if what < 0.25 or not path.is_file():
        replace_oddly(path, chance)
    elif what < 0.6 and path.suffix in (".toml", ".json", ".jsonl", ".csv"):
        text = path.read_text()
        path.write_text(damaged_text(text, chance) if path.suffix == ".toml" else damaged_json(text, chance))
    else:
        path.write_bytes(damaged_bytes(path.read_bytes(), chance))


def damaged_json(text: str, chance: Random) -> str:
    """Documents with another value, or another word, somewhere."""
    spots = [place for place, sign in enumerate(text) if sign in ":,"]
    if not spots:
        return literal(chance)
    place = chance.choice(spots) + 1
    end = min((at for at in (text.find(sign, place) for sign in ",}]\n") if at >= 0), default=len(text))
    return text[:place] + " " + literal(chance) + text[end:]
