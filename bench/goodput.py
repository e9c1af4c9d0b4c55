"""Goodput of long runs, by simulation: the part of the time that trains steps which are kept.

  goodput.py [--interval SECONDS] [--stall SECONDS] [--commit SECONDS] [--restart SECONDS ...] [--mtbf SECONDS ...]
             [--failures N] [--seed N] [--check]

A run trains for `interval`, stalls for `stall` while a snapshot is taken, and commits the checkpoint `commit` later, while
it trains. It fails at random, on average once in `mtbf`, also while it starts. Each failure costs what was trained since
the last checkpoint that is committed, and `restart`, from the failure to the next step. Without --interval it is that of
J. W. Young, A first order approximation to the optimum checkpoint interval, 1974, but at least twice `commit`. Nothing here
is a measurement of a run that long.

--check compares the simulation with the closed form of J. T. Daly, A higher order estimate of the optimum checkpoint interval
for restart dumps, 2006, in which the time of a commit counts as a part of the restart.
"""
import argparse
import math
import random
import sys

DAY, HOUR, MINUTE = 86400, 3600, 60


def young(mtbf, stall, commit):
    """The interval at which stalls cost as much as lost steps do."""
    return max(math.sqrt(2 * stall * mtbf), 2 * commit, 1)


def closed_form(mtbf, interval, stall, commit, restart):
    return interval / (mtbf * math.exp((restart + commit) / mtbf) * math.expm1((interval + stall) / mtbf))


def simulate(mtbf, interval, stall, commit, restart, failures, seed):
    """Goodput over `failures` failures."""
    generator = random.Random(seed)
    kept = total = 0.0
    for _ in range(failures):
        lifetime = generator.expovariate(1 / mtbf)
        total += lifetime
        # Checkpoint k is committed at restart + k (interval + stall) + commit.
        kept += max(0, (lifetime - restart - commit) // (interval + stall)) * interval
    return kept / total


def duration(seconds):
    for unit, name in ((DAY, "d"), (HOUR, "h"), (MINUTE, "min")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds:.3g} s"


def check(args):
    """The largest difference from the closed form, in parts of the closed form."""
    worst = 0.0
    for mtbf in args.mtbf:
        for restart in args.restart:
            interval = args.interval or young(mtbf, args.stall, args.commit)
            exact = closed_form(mtbf, interval, args.stall, args.commit, restart)
            simulated = simulate(mtbf, interval, args.stall, args.commit, restart, args.failures, args.seed)
            print(f"mtbf {duration(mtbf):>7}  interval {duration(interval):>7}  restart {duration(restart):>7}  "
                  f"closed form {exact:.4f}  simulated {simulated:.4f}")
            worst = max(worst, abs(simulated / exact - 1))
    return worst


def print_table(args):
    print("| mean time between failures | save every | " +
          " | ".join(f"restart {duration(restart)}" for restart in args.restart) + " |")
    print("|---|---|" + "---|" * len(args.restart))
    for mtbf in args.mtbf:
        interval = args.interval or young(mtbf, args.stall, args.commit)
        cells = [f"{100 * simulate(mtbf, interval, args.stall, args.commit, restart, args.failures, args.seed):.2f} %"
                 for restart in args.restart]
        print(f"| {duration(mtbf)} | {duration(interval)} | " + " | ".join(cells) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--interval", type=float, help="seconds between two checkpoints")
    parser.add_argument("--stall", type=float, default=0.065, help="seconds of training that each checkpoint costs")
    parser.add_argument("--commit", type=float, default=5, help="seconds from the snapshot to the committed checkpoint")
    parser.add_argument("--restart", type=float, nargs="+", default=[0.81, 60, 600])
    parser.add_argument("--mtbf", type=float, nargs="+", default=[7 * DAY, DAY, 8 * HOUR, 2 * HOUR, 30 * MINUTE])
    parser.add_argument("--failures", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--check", action="store_true", help="compare with the closed form; fails if it differs by 1 %%")
    args = parser.parse_args()
    if min([args.stall, args.commit, *args.restart]) < 0 or min([args.interval or 1, *args.mtbf]) <= 0:
        parser.error("times must be positive")
    if not args.check:
        print_table(args)
    elif check(args) > 0.01:
        sys.exit("the simulation differs from the closed form")


if __name__ == "__main__":
    main()
