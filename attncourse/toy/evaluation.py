"""How good a model is, where its attention goes, and what can be had without a model."""

import torch

from attncourse.toy.data import NOISE_FLOOR, Data, differs, make_test_data, profiles
from attncourse.toy.models import ToyModel


@torch.no_grad()
def evaluate(model: ToyModel, data: Data) -> float:
    """The mean squared error of the predictions; in the long run, never below `NOISE_FLOOR`."""
    batches = zip(data.input.split(100), data.target.split(100), strict=True)
    total = sum((model(x) - target).square().sum().item() for x, target in batches)
    return total / data.target.numel()


@torch.no_grad()
def attention_shares(model: ToyModel, data: Data) -> dict[str, float]:
    """Where the weight of the positions on shapes goes, as a mean over these positions.

    Returns
    -------
    dict
        "own": to the shape itself; "partner": to the shape it is averaged with; "others":
        to the two other shapes; "elsewhere": to positions on no shape. They sum to 1.
    """
    covered = (profiles(data.centre, data.width) > 0).float()  # (num_sequences, 4, LENGTH)
    weights = model.attention_map(data.input)  # (num_sequences, LENGTH, LENGTH)
    between = covered @ weights @ covered.mT  # (num_sequences, 4, 4), from shape to shape
    own = between.diagonal(dim1=1, dim2=2).sum() / covered.sum()
    partner = between.gather(2, data.partner.unsqueeze(2)).sum() / covered.sum()
    on_shapes = between.sum() / covered.sum()
    shares = {"own": own, "partner": partner, "others": on_shapes - own - partner, "elsewhere": 1 - on_shapes}
    return {name: float(share) for name, share in shares.items()}


def anchors(version: str, num_sequences: int = 50_000) -> dict[str, float]:
    """Mean squared errors that need no training: what four predictions achieve.

    Returns
    -------
    dict
        "copy": of the input as the prediction; "own height": of the best prediction from a
        shape's own height; "own and mean height": of the best linear prediction from that
        and the mean of the sequence's four heights; "all heights": of the best prediction
        from its own and the three other heights by one who knows neither kinds nor places,
        and so cannot tell which of the three is the partner's. Each includes the noise.
    """
    data = make_test_data(version, num_sequences)
    # How much an error of 1 in a shape's height adds to the mean squared error.
    cost = profiles(data.centre, data.width).square().sum(2).flatten().double() / data.target.numel()
    own = data.height.flatten().double()  # (4 * num_sequences,)
    target = data.target_height.flatten().double()
    mean = data.height.mean(1, keepdim=True).expand(-1, 4).flatten().double()

    nearest = (4 * own).round().long()  # a quarter of a unit is fine enough
    by_height = torch.bincount(nearest, cost * target) / torch.bincount(nearest, cost)
    columns = torch.stack((torch.ones_like(own), own, mean), dim=1)  # (4 * num_sequences, 3)
    root = cost.sqrt().unsqueeze(1)
    linear = columns @ torch.linalg.lstsq(root * columns, root * target.unsqueeze(1)).solution.squeeze(1)
    # What is left to one who does not know the pairs: the mean over the ways to pair the four that
    # keep the least difference.
    total, count = torch.zeros(num_sequences, 4), torch.zeros(num_sequences, 1)
    for pairs in ([1, 0, 3, 2], [2, 3, 0, 1], [3, 2, 1, 0]):
        possible = differs(version, data.height, data.height[:, pairs]).unsqueeze(1)  # (num_sequences, 1)
        total += possible * (data.height + data.height[:, pairs]) / 2
        count += possible
    # The copy of an input has its noise, too.
    predictions = {
        "copy": (own, 2),
        "own height": (by_height[nearest], 1),
        "own and mean height": (linear, 1),
        "all heights": ((total / count).flatten().double(), 1),
    }
    return {
        name: float((cost * (prediction - target).square()).sum()) + noises * NOISE_FLOOR
        for name, (prediction, noises) in predictions.items()
    }
