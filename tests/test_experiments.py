"""What the experiments share: a descent, and figures."""

import pytest
import torch
from bs4 import BeautifulSoup

from attncourse import plots
from attncourse.experiments._figure import Captioned, axes_for, level
from attncourse.experiments._training import one_cycle


def test_a_cycle_is_adam_at_the_rates_of_a_cycle():
    """Adam by hand, from its paper, at the rates that PyTorch's schedule gives to another optimiser."""
    weight = torch.nn.Parameter(torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64))
    by_hand, mean, square = weight.detach().clone(), 0, 0
    scale = torch.tensor([1.0, 3.0, 0.2], dtype=torch.float64)
    steps, highest = 12, 0.3
    losses = one_cycle([weight], ((scale * weight**2).sum() for _ in range(steps)), steps, highest)

    other = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=highest)
    schedule = torch.optim.lr_scheduler.OneCycleLR(other, max_lr=highest, total_steps=steps)
    expected = []
    for step in range(1, steps + 1):
        rate, beta = other.param_groups[0]["lr"], other.param_groups[0]["betas"][0]
        expected.append((scale * by_hand**2).sum().item())
        gradient = 2 * scale * by_hand
        # A cycle of the rate is one of the momentum, too.
        mean = beta * mean + (1 - beta) * gradient
        square = 0.999 * square + 0.001 * gradient**2
        by_hand = by_hand - rate * (mean / (1 - beta**step)) / ((square / (1 - 0.999**step)).sqrt() + 1e-8)
        other.step()
        if step < steps:
            schedule.step()
    assert losses.tolist() == pytest.approx(expected, rel=1e-6)
    assert weight.tolist() == pytest.approx(by_hand.tolist(), rel=1e-6)


def test_a_loss_is_asked_for_after_the_step_before_it():
    weight = torch.nn.Parameter(torch.tensor(1.0))
    seen = []

    def loss():
        seen.append(weight.item())
        return weight**2

    one_cycle([weight], (loss() for _ in range(3)), 3, 0.1)
    assert len(set(seen)) == 3


def test_a_level_line_is_where_it_should_be():
    figure, ax = axes_for([1], 4, 3)
    level(ax, 0.75, "predicted")
    (line,) = ax.lines
    assert set(line.get_ydata()) == {0.75}
    assert [text.get_text() for text in ax.texts] == ["predicted"]
    Captioned(figure, "", "")


@pytest.mark.parametrize("number", [0, len(plots.COLOURS) + 1])
def test_more_runs_than_colours_are_refused(number):
    with pytest.raises(ValueError, match=f"runs has {number} runs: expected 1 to {len(plots.COLOURS)}"):
        axes_for(range(number), 4, 3)


def test_a_figure_has_its_words_as_they_are():
    figure, _ = axes_for([1], 4, 3)
    shown = Captioned(figure, "a < b & c", 'the "best"')
    page = BeautifulSoup(shown._repr_html_(), "html.parser")
    assert page.figcaption.text == "a < b & c"
    assert page.img["alt"] == 'the "best"'
    assert page.style.text.startswith('[data-jp-theme-light="false"] .attncourse-figure img')
    assert page.select_one(".attncourse-figure img") == page.img
    assert repr(shown) == 'a < b & c the "best"'
