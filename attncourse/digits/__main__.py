"""``python -m attncourse.digits``: train the models that tell digits apart, and look at what came out."""

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path

from attncourse import digits
from attncourse._runs import command_line, finished, run_command, run_of
from attncourse.digits import MODELS, ORDERS, RESULTS, Result, Run, evaluate, results
from attncourse.vision import POSITIONS

DESCRIPTION = """\
Handwritten digits of 8 x 8 pixels: train models that tell them apart, and
evaluate them on those that are held out. Patches of 2 x 2 pixels may stand in
another order: in one for all pictures, or each picture in an order of its own.

An interrupted training goes on where it stopped, and to exactly the same weights,
when the same command is given again."""

EXAMPLES = """\
examples:
  python -m attncourse.digits train attention           less than a minute
  python -m attncourse.digits train attention --positions none --order own
  python -m attncourse.digits results                   the results that come with the course
  python -m attncourse.digits evaluate                  ... computed again, from the weights"""


def parser() -> argparse.ArgumentParser:
    parser, add, command = command_line("digits", DESCRIPTION, EXAMPLES, "digit_runs")
    command.add_argument("model", choices=MODELS, help="attention, or what it is compared with")
    command.add_argument("--positions", choices=POSITIONS, default=Run.positions, help="of attention")
    command.add_argument("--order", choices=ORDERS, default=Run.order, help="of the patches, in training")
    command.add_argument("--steps", type=int, default=Run.steps, help="how many batches to train on")
    command.add_argument("--batch", type=int, default=Run.batch, help="pictures for each step")
    command.add_argument("--rate", type=float, default=Run.rate, help="highest learning rate")
    command.add_argument("--seed", type=int, default=Run.seed, help="of the weights and of the order of data")

    command = add(
        "results",
        "print the shares of held-out digits that are right, as the logs tell, with their range over seeds",
    )
    command.add_argument("--folder", type=Path, default=RESULTS, help="where the logs are")

    command = add("evaluate", "compute these shares from the weights")
    command.add_argument("--folder", type=Path, default=RESULTS, help="where weights and logs are")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    run_command(parser(), arguments, do)


def do(options: argparse.Namespace) -> None:
    if options.command == "train":
        run = run_of(Run, options)
        print_shares(
            str(options.out / run.name), finished(run, run.name, options.out, digits).log["held_out"]
        )
    elif options.command == "results":
        print_results(list(results(options.folder).values()))
    else:
        for name, (_, _, model) in results(options.folder).items():
            if model is not None:
                print_shares(name, evaluate(model))


def print_shares(name: str, shares: dict[str, float]) -> None:
    print(f"{name:32} " + ", ".join(f"order {order} {share:.1%}" for order, share in shares.items()))


def print_results(found: Sequence[Result]) -> None:
    """One line for all seeds of a model that was trained in the same way."""
    same: dict[Run, list[dict[str, float]]] = {}
    parameters: dict[Run, int] = {}
    for run, log, _ in found:
        key = dataclasses.replace(run, seed=0)
        same.setdefault(key, []).append(log["held_out"])
        parameters[key] = log["parameters"]
    print(f"{'':43}runs  right, with patches in the order")
    print(
        "model       positions   trained  parameters"
        + "".join(f"{order:>16}" for order in ("", *ORDERS))[10:]
    )
    for run, shares in same.items():
        ranges = [[share[order] for share in shares] for order in ORDERS]
        words = "".join(f"  {min(one):6.1%} to {max(one):6.1%}" for one in ranges)
        positions = run.positions if run.model == "attention" else ""
        print(f"{run.model:12}{positions:12}{run.order:9}{parameters[run]:10,}{len(shares):5}{words}")


if __name__ == "__main__":
    main()
