"""Accounting against plain dp-accounting: the same questions, the answers checked, then timed in turns.

Prints a Markdown table of CPU-time ratios (how many times faster we answer) and writes bench/accounting.json.
"""

import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import dp_accounting
from dp_accounting.pld import PLDAccountant

from tacit.privacy import accounting, pld
from tacit.privacy.accounting import calibrate, clipped_release

REPEATS = 3
DELTA = 1e-5


def event(multiplier: float, rate: float, steps: int) -> dp_accounting.DpEvent:
    step = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(multiplier))
    return dp_accounting.SelfComposedDpEvent(
        step if rate < 1 else dp_accounting.GaussianDpEvent(multiplier), steps
    )


def their_epsilon(multiplier: float, rate: float, steps: int) -> float:
    return PLDAccountant().compose(event(multiplier, rate, steps)).get_epsilon(DELTA)


def our_epsilon(multiplier: float, rate: float, steps: int) -> float:
    return accounting.epsilon([clipped_release(multiplier, rate=rate, count=steps)], DELTA)


def their_noise(epsilon: float, rate: float, steps: int) -> float:
    return dp_accounting.calibrate_dp_mechanism(
        PLDAccountant, lambda noise: event(noise, rate, steps), epsilon, DELTA, tol=1e-3
    )


def our_noise(epsilon: float, rate: float, steps: int) -> float:
    return calibrate(epsilon=epsilon, delta=DELTA, rate=rate, steps=steps)


CASES: dict[str, tuple[Callable[..., float], Callable[..., float], tuple[float, float, int], float]] = {
    "epsilon, 10,000 sampled steps": (our_epsilon, their_epsilon, (1.0, 0.01, 10_000), 2e-3),
    "epsilon, 400 sampled steps": (our_epsilon, their_epsilon, (2.6, 0.1, 400), 2e-3),
    "epsilon, 100 plain Gaussians, little noise": (our_epsilon, their_epsilon, (3.0, 1.0, 100), 2e-3),
    "noise, 10,000 sampled steps": (our_noise, their_noise, (1.0, 0.01, 10_000), 5e-3),
    "noise, 400 sampled steps": (our_noise, their_noise, (3.0, 0.1, 400), 5e-3),
    "noise, 100 plain Gaussians": (our_noise, their_noise, (1.0, 1.0, 100), 5e-3),
}


def timed(function: Callable[..., float], arguments: tuple[float, float, int]) -> tuple[float, float]:
    # Ours remembers what it has computed; a fair race starts without memory.
    accounting._composed.cache_clear()
    pld.single.cache_clear()
    start = time.process_time()
    answer = function(*arguments)
    return answer, time.process_time() - start


def race(name: str) -> dict[str, float | str]:
    ours, theirs, arguments, tolerance = CASES[name]
    pairs = [(timed(ours, arguments), timed(theirs, arguments)) for _ in range(REPEATS)]
    (our_answer, _), (their_answer, _) = pairs[0]
    assert abs(our_answer / their_answer - 1) < tolerance, (name, our_answer, their_answer)
    our_time = statistics.median(mine for (_, mine), _ in pairs)
    their_time = statistics.median(other for _, (_, other) in pairs)
    return {
        "case": name,
        "ours": our_answer,
        "theirs": their_answer,
        "our_cpu_seconds": our_time,
        "their_cpu_seconds": their_time,
        "ratio": their_time / max(our_time, 1e-6),
    }


def main() -> None:
    our_epsilon(1.0, 0.5, 2)  # imports happen outside the race
    rows = [race(name) for name in CASES]
    print("| against dp-accounting 0.6 (PLD, default grid) | theirs | ours | times faster |")
    print("| --- | ---: | ---: | ---: |")
    for row in rows:
        print(f"| {row['case']} | {row['theirs']:.4f} | {row['ours']:.4f} | {row['ratio']:,.1f} |")
    Path(__file__).with_suffix(".json").write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
