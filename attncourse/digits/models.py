"""Four classifiers of digits: three of equal size, and a linear layer."""

from torch import nn

from attncourse._require import require_choice
from attncourse.digits.data import IMAGE_SIZE, NUM_CLASSES, PATCH_SIZE
from attncourse.vision import VisionTransformer

MODELS = ("attention", "convolution", "connected", "linear")


def make_model(name: str, positions: str = "learned") -> nn.Module:
    """Make a classifier: from pictures, (num_images, 1, 8, 8), to scores, (num_images, 10).

    Parameters
    ----------
    name : str
        "attention": a :class:`~attncourse.VisionTransformer` of two blocks with four heads. "convolution":
        two layers of convolutions, a maximum over 2 x 2 pixels, and a linear layer. "connected": two fully
        connected layers. "linear": one.
    positions : str
        Of the Vision Transformer; the others have none to choose.

    Raises
    ------
    ValueError
        If `name` or `positions` is unknown.
    """
    require_choice("name", name, MODELS)
    if name == "attention":
        return VisionTransformer(
            (IMAGE_SIZE, IMAGE_SIZE), PATCH_SIZE, NUM_CLASSES, 32, 4, 2, 64, positions=positions
        )
    pixels = IMAGE_SIZE**2
    if name == "convolution":
        return nn.Sequential(
            nn.Conv2d(1, 28, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(28, 44, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(44 * pixels // 4, NUM_CLASSES),
        )
    if name == "connected":
        return nn.Sequential(nn.Flatten(), nn.Linear(pixels, 243), nn.ReLU(), nn.Linear(243, NUM_CLASSES))
    return nn.Sequential(nn.Flatten(), nn.Linear(pixels, NUM_CLASSES))
