"""``python -m attncourse.letters``: train the two letter models, and let them write."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from attncourse import letters
from attncourse._runs import command_line, finished, run_command, run_of
from attncourse.letters import RESULTS, TASKS, Run, evaluate, results

DESCRIPTION = """\
Two small Transformers that write letters: "text" goes on with a text, "sorting"
writes the letters of a word in the order of the alphabet.

An interrupted training goes on where it stopped, and to exactly the same weights,
when the same command is given again."""

EXAMPLES = """\
examples:
  python -m attncourse.letters train text --steps 200    less than a minute
  python -m attncourse.letters evaluate                  the models that come with the course"""


def parser() -> argparse.ArgumentParser:
    parser, add, command = command_line("letters", DESCRIPTION, EXAMPLES, "letter_runs")
    command.add_argument("task", choices=TASKS, help="go on with a text, or sort the letters of words")
    command.add_argument("--steps", type=int, default=Run.steps, help="how many batches to train on")
    command.add_argument("--batch", type=int, default=Run.batch, help="passages or words for each step")
    command.add_argument("--length", type=int, default=Run.length, help="letters in a passage of the text")
    command.add_argument("--rate", type=float, default=Run.rate, help="highest learning rate")
    command.add_argument("--dropout", type=float, default=Run.dropout, help="probability of dropping")
    command.add_argument("--seed", type=int, default=Run.seed, help="of the weights and of the data")

    command = add("evaluate", "compute from the weights how good the models are")
    command.add_argument("--folder", type=Path, default=RESULTS, help="where weights and logs are")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    run_command(parser(), arguments, do)


def do(options: argparse.Namespace) -> None:
    if options.command == "train":
        run = run_of(Run, options)
        print_test(str(options.out / run.task), finished(run, run.task, options.out, letters).log["test"])
    else:
        for task, (_, _, model) in results(options.folder).items():
            print_test(task, evaluate(model, task))


def print_test(name: str, test: dict[str, float]) -> None:
    print(f"{name}: " + ", ".join(f"{what.replace('_', ' ')} {number:.4f}" for what, number in test.items()))


if __name__ == "__main__":
    main()
