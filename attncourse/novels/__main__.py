"""``python -m attncourse.novels``: train language models on novels, and let them write."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import torch

from attncourse import novels
from attncourse._runs import command_line, finished, run_command, run_of
from attncourse.novels import RESULTS, SIZES, VARIANTS, Run, evaluate, results
from attncourse.your_model import generate

DESCRIPTION = """\
Language models that read five of Jane Austen's novels, and are tested on the
sixth.

An interrupted training goes on where it stopped, and to exactly the same weights,
when the same command is given again."""

EXAMPLES = """\
examples:
  python -m attncourse.novels train small                two minutes
  python -m attncourse.novels write "My dear Emma,"      the model that comes with the course
  python -m attncourse.novels evaluate                   its loss on the novel held out, from the weights"""


def parser() -> argparse.ArgumentParser:
    parser, add, command = command_line("novels", DESCRIPTION, EXAMPLES, "novel_runs")
    command.add_argument("size", choices=tuple(SIZES), help="the course's model, or a small one")
    command.add_argument("--variant", choices=tuple(VARIANTS), default=Run.variant, help="of the blocks")
    command.add_argument("--steps", type=int, default=Run.steps, help="how many batches to train on")
    command.add_argument("--batch", type=int, default=Run.batch, help="passages for each step")
    command.add_argument("--rate", type=float, default=Run.rate, help="highest learning rate")
    command.add_argument("--dropout", type=float, default=Run.dropout, help="probability of dropping")
    command.add_argument("--seed", type=int, default=Run.seed, help="of the weights and of the data")

    command = add("evaluate", "compute from the weights how good the models are")
    command.add_argument("--folder", type=Path, default=RESULTS, help="where weights and logs are")

    command = add("ngrams", "compute the losses of n-gram models, which count, and write them to a file")
    command.add_argument("--out", type=Path, default=Path("ngrams.json"), help="the file")

    command = add("write", "let the model that comes with the course go on with a text")
    command.add_argument("beginning", help="what it goes on with")
    command.add_argument("--tokens", type=int, default=120, help="how many tokens to add")
    command.add_argument("--temperature", type=float, default=0.8, help="0 takes the most probable token")
    command.add_argument("--top-p", type=float, default=0.95, help="what the nucleus has together")
    command.add_argument("--seed", type=int, default=1, help="of the draws")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    run_command(parser(), arguments, do)


def do(options: argparse.Namespace) -> None:
    if options.command == "train":
        run = run_of(Run, options)
        print_test(run.name, finished(run, run.name, options.out, novels).log["held_out"])
    elif options.command == "evaluate":
        for name, (_, _, model) in results(options.folder).items():
            if model is not None:
                print_test(name, evaluate(model))
    elif options.command == "ngrams":
        losses = {order: round(loss, 5) for order, loss in novels.measure_ngrams().items()}
        options.out.write_text(json.dumps(losses) + "\n", encoding="utf-8")
        for order, loss in losses.items():
            print(f"order {order}: loss {loss:.4f} a token")
    else:
        torch.manual_seed(options.seed)
        written = generate(
            novels.course_model(),
            novels.encode(options.beginning),
            options.tokens,
            temperature=options.temperature,
            top_p=options.top_p,
        )
        print(novels.decode(written))


def print_test(name: str, test: dict[str, float]) -> None:
    print(f"{name:28} loss {test['loss']:.4f} a token, {test['bits_per_letter']:.4f} bits a letter")


if __name__ == "__main__":
    main()
