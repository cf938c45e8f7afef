"""Fuzz all readers: `python -m benchmarks.fuzz --examples 20000`; exit status 1 if there are findings."""

from __future__ import annotations

import argparse
import sys
import time
import traceback

from benchmarks.report import ROOT


def main() -> int:
    """Feed each reader its share of the examples; print a table, and each finding with its minimised input."""
    sys.path.insert(0, str(ROOT / "tests"))  # where the strategies live, beside the suite's short version
    from fuzzing import TARGETS, fuzz

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=20000, help="total number of examples (default: 20000)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the examples (default: 0)")
    parser.add_argument("--only", choices=tuple(TARGETS), help="test only one reader")
    options = parser.parse_args()
    names = [options.only] if options.only else list(TARGETS)
    share, findings = -(-options.examples // len(names)), 0
    print("| reader | examples | accepted | refused in a sentence | seconds |\n|---|---|---|---|---|", flush=True)
    for name in names:
        begin = time.perf_counter()
        try:
            count, accepted = fuzz(name, share, options.seed)
        except Exception:  # noqa: BLE001 (whatever it is, it is a finding)
            findings += 1
            print(f"| {name} | found something: |\n{traceback.format_exc()}", flush=True)
        else:
            seconds = time.perf_counter() - begin
            print(f"| {name} | {count} | {accepted} | {count - accepted} | {seconds:.0f} |", flush=True)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
