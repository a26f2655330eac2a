"""Training lines varied at random: geometry in one compiled pass, then stroke width, blur, contrast and noise."""

from dataclasses import dataclass

import numba
import numpy as np
from PIL import Image, ImageFilter

from fada.errors import FadaError


@numba.njit(cache=True, nogil=True)
def warp(
    pixels: np.ndarray, matrix: np.ndarray, shift: np.ndarray, out: np.ndarray, paper: float
) -> None:  # pragma: no cover - compiled
    """Sample `pixels` through an affine map plus a smooth displacement, bilinearly, into `out`.

    Args:
        pixels: (h, w) uint8 or float32, the source.
        matrix: (2, 3) float64, maps (x, y, 1) of `out` to (x, y) of the source.
        shift: (2, rows, columns) float64, displacements in source pixels (x, then y) at the knots of a grid that
            spans `out`; bilinear between the knots. At least 2 x 2.
        out: (H, W), written; of the type of `pixels`.
        paper: the value outside the source.
    """
    source_height, source_width = pixels.shape
    height, width = out.shape
    rows, columns = shift.shape[1], shift.shape[2]
    row_step = (rows - 1) / max(height - 1, 1)
    column_step = (columns - 1) / max(width - 1, 1)
    for y in range(height):
        grid_y = y * row_step
        row = min(int(grid_y), rows - 2)
        down = grid_y - row
        for x in range(width):
            grid_x = x * column_step
            column = min(int(grid_x), columns - 2)
            right = grid_x - column
            a = (1 - down) * (1 - right)
            b = (1 - down) * right
            c = down * (1 - right)
            d = down * right
            source_x = matrix[0, 0] * x + matrix[0, 1] * y + matrix[0, 2]
            source_x += a * shift[0, row, column] + b * shift[0, row, column + 1]
            source_x += c * shift[0, row + 1, column] + d * shift[0, row + 1, column + 1]
            source_y = matrix[1, 0] * x + matrix[1, 1] * y + matrix[1, 2]
            source_y += a * shift[1, row, column] + b * shift[1, row, column + 1]
            source_y += c * shift[1, row + 1, column] + d * shift[1, row + 1, column + 1]
            left = int(np.floor(source_x))
            top = int(np.floor(source_y))
            if left < -1 or top < -1 or left >= source_width or top >= source_height:
                out[y, x] = paper
                continue
            fx = source_x - left
            fy = source_y - top
            value = 0.0
            for dy in range(2):
                for dx in range(2):
                    weight = (fy if dy else 1 - fy) * (fx if dx else 1 - fx)
                    sx = left + dx
                    sy = top + dy
                    inside = 0 <= sx < source_width and 0 <= sy < source_height
                    value += weight * (pixels[sy, sx] if inside else paper)
            out[y, x] = value


def thicken(pixels: np.ndarray, amount: float) -> np.ndarray:
    """Make dark strokes wider (`amount` > 0: erosion of the paper) or thinner (< 0), by up to one pixel at 1.

    Args:
        pixels: (H, W) uint8, dark on light.
        amount: share of the full effect, from -1 to 1.
    """
    pick = np.minimum if amount > 0 else np.maximum
    changed = pixels.copy()
    pick(changed[:, 1:], pixels[:, :-1], out=changed[:, 1:])
    vertical = changed.copy()
    pick(vertical[1:], changed[:-1], out=vertical[1:])
    return blend(pixels, vertical, abs(amount))


def blend(a: np.ndarray, b: np.ndarray, share: float) -> np.ndarray:
    """Grey values (1 - share) * a + share * b, both (H, W) uint8."""
    return np.asarray(Image.blend(Image.fromarray(a), Image.fromarray(b), min(share, 1.0)))


@dataclass(frozen=True)
class Augment:
    """Random variation of a training line: stretch, slant, rotation, elastic, stroke width, blur, contrast, noise.

    A pure function of (seed, epoch, index): the same line looks the same in the same epoch on any worker process, and
    different in the next epoch. The width changes by the stretch, the height never.

    Args:
        strength: 0 leaves lines as they are, 1 is meant for a few thousand lines, 2 is wild.
        seed: a run's seed.
        hidden: share of the line that is painted over with paper, in spans of a tenth to four tenths of its height, so
            that what stands there has to be told from its surroundings.
    """

    strength: float = 1.0
    seed: int = 0
    hidden: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.strength <= 4:
            raise FadaError(f"augmentation strength is {self.strength}, expected a number from 0 to 4.")
        if not 0 <= self.hidden < 1:
            raise FadaError(f"the share of a line to hide is {self.hidden}, expected a number from 0 up to 1.")

    def __call__(self, pixels: np.ndarray, *, epoch: int, index: int) -> np.ndarray:
        """Vary one line.

        Args:
            pixels: (H, W) uint8, dark on light.
            epoch, index: which pass over the data, and which line of it; numbers from 0 up.

        Returns:
            (H, W') uint8.
        """
        rng = np.random.default_rng((self.seed, epoch, index))
        if self.strength:
            pixels = self._varied(pixels, rng)
        return self._partly_hidden(pixels, rng) if self.hidden else pixels

    def _varied(self, pixels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        pixels = self._geometry(pixels, rng)
        if rng.random() < 0.5:
            pixels = thicken(pixels, float(np.clip(0.6 * self.strength * rng.uniform(-1, 1), -1, 1)))
        if rng.random() < 0.3:
            radius = self.strength * rng.uniform(0.2, 0.9) * pixels.shape[0] / 64
            pixels = np.asarray(Image.fromarray(pixels).filter(ImageFilter.GaussianBlur(radius)))
        return self._tone(pixels, rng)

    def _geometry(self, pixels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        height, width = pixels.shape
        strength = self.strength
        stretch = float(np.exp(np.clip(0.12 * strength * rng.standard_normal(), -0.5, 0.5)))
        slant = 0.15 * strength * float(np.clip(rng.standard_normal(), -2, 2))
        # Limited by the rise at the ends of the line, so that long lines stay inside their strip.
        angle = 0.05 * strength * height / max(width, height) * float(np.clip(rng.standard_normal(), -2, 2))
        grow = float(np.exp(0.04 * strength * np.clip(rng.standard_normal(), -2, 2)))
        new_width = max(round(width * stretch), 1)
        # Output (x, y) relative to the centre is taken to the source: scale, then shear by the slant, then turn.
        linear = np.array([[1 / stretch, slant], [angle, grow]])
        centre_out = np.array([(new_width - 1) / 2, (height - 1) / 2])
        centre_in = np.array([(width - 1) / 2, (height - 1) / 2])
        offset = centre_in - linear @ centre_out + np.array([0.0, 0.02 * strength * height * rng.standard_normal()])
        matrix = np.column_stack([linear, offset])
        knots = (4, max(round(2 * new_width / height) + 2, 4))
        elastic = 0.022 * strength * height * np.clip(rng.standard_normal((2, *knots)), -2, 2)
        out = np.empty((height, new_width), dtype=np.uint8)
        paper = float(np.median(pixels[:, :: max(width // 256, 1)]))
        warp(pixels, matrix, elastic, out, paper)
        return out

    def _tone(self, pixels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Contrast, brightness and gamma through one table of 256 entries; grain on top."""
        strength = self.strength
        levels = np.linspace(0.0, 1.0, 256)
        gamma = np.exp(0.25 * strength * rng.uniform(-1, 1))
        contrast = 1 - min(0.35 * strength, 0.7) * rng.random()
        brightness = 0.1 * strength * rng.uniform(-1, 1)
        table = 255 * np.clip((levels**gamma - 0.5) * contrast + 0.5 + brightness, 0, 1)
        if rng.random() < 0.5:
            grain = 10 * strength * rng.random()
            noise = rng.standard_normal(pixels.shape, dtype=np.float32)
            noise *= grain
            noise += table.astype(np.float32)[pixels]
            return np.clip(noise, 0, 255).astype(np.uint8)
        return table.astype(np.uint8)[pixels]

    def _partly_hidden(self, pixels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Spans anywhere on the line, so many that they would cover the share if they did not overlap."""
        height, width = pixels.shape
        mean_span = 0.25 * height
        count = rng.poisson(self.hidden * width / mean_span)
        spans = np.maximum(np.round(rng.uniform(0.1, 0.4, count) * height), 1).astype(int)
        starts = rng.integers(0, width, count)
        shown = pixels.copy()
        paper = np.percentile(pixels[:, :: max(width // 256, 1)], 75)
        for start, span in zip(starts, spans, strict=True):
            shown[:, start : start + span] = paper
        return shown
