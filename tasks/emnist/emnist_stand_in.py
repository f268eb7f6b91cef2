# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Letters and digits that no hand wrote, as a stand-in for EMNIST.

They are drawn with the fonts that come with matplotlib. A writer has a font, a
pen, a slant, a size and a way of bending lines; every character is drawn a
little differently. Half of the characters are digits, as in EMNIST, and a sixth
of each writer's characters is held out.
"""

from collections.abc import Iterator
import string

import matplotlib
from matplotlib import font_manager
from matplotlib import path as path_lib
from matplotlib import textpath
from matplotlib import transforms
from matplotlib.backends import backend_agg
import numpy as np

CHARACTERS = string.digits + string.ascii_uppercase + string.ascii_lowercase
SIZE = 28
EXAMPLES_PER_WRITER = 120
_NUM_TEST = EXAMPLES_PER_WRITER // 6
_NUM_DIGITS = len(string.digits)
_FONTS = (
    'DejaVuSans', 'DejaVuSans-Bold', 'DejaVuSans-Oblique', 'DejaVuSansMono',
    'DejaVuSansMono-Oblique', 'DejaVuSerif', 'DejaVuSerif-Bold',
    'DejaVuSerif-Italic', 'STIXGeneral', 'STIXGeneralBol', 'STIXGeneralItalic',
    'cmb10', 'cmr10', 'cmss10', 'cmtt10',
)


def describe(num_writers: int) -> str:
  """Returns a description of the data, for reports."""
  return (
      f'a stand-in for EMNIST: {num_writers} invented writers, whose letters'
      f' and digits are drawn with the fonts of matplotlib {matplotlib.__version__}'
  )


class Writer:
  """Draws characters in a style of its own."""

  def __init__(self, number: int):
    """Chooses the style.

    Args:
      number: Number of the writer. It fixes style and characters.
    """
    self._rng = rng = np.random.default_rng([20170217, number])
    folder = matplotlib.get_data_path() + '/fonts/ttf/'
    self._font = font_manager.FontProperties(
        fname=f'{folder}{rng.choice(_FONTS)}.ttf'
    )
    self._pen = rng.uniform(0.2, 2.2)
    self._slant = rng.normal(0, 12)
    self._tilt = rng.normal(0, 5)
    self._height = rng.uniform(15, 21)
    self._width = rng.uniform(0.75, 1.2)
    self._bend = rng.normal(0, 0.25, [2, 2])
    # At 72 dots per inch, a point is a pixel.
    self._paper = backend_agg.RendererAgg(SIZE, SIZE, 72)
    self._paths = {}

  def examples(self) -> Iterator[tuple[bool, int, np.ndarray]]:
    """Yields (is held out, label, pixels in [0, 1] with 1 for the paper)."""
    share = np.where(
        np.arange(len(CHARACTERS)) < _NUM_DIGITS,
        0.5 / _NUM_DIGITS,
        0.5 / (len(CHARACTERS) - _NUM_DIGITS),
    )
    labels = self._rng.choice(len(CHARACTERS), EXAMPLES_PER_WRITER, p=share)
    for index, label in enumerate(labels):
      yield index < _NUM_TEST, int(label), self.draw(CHARACTERS[label])

  def draw(self, character: str) -> np.ndarray:
    """Returns the pixels of a character, float32 of shape [28, 28]."""
    if character not in self._paths:
      path = textpath.TextPath((0, 0), character, size=1, prop=self._font)
      # Over the height of a capital letter, centred.
      middle = (path.vertices.min(axis=0) + path.vertices.max(axis=0)) / 2
      self._paths[character] = path, path.vertices - middle
    path, vertices = self._paths[character]
    rng = self._rng
    bend = self._bend + rng.normal(0, 0.1, [2, 2])
    bent = vertices + 0.1 * np.sin(
        4 * vertices[:, ::-1] @ bend + rng.uniform(0, 6, 2)
    )
    place = (
        transforms.Affine2D()
        .skew_deg(self._slant + rng.normal(0, 3), 0)
        .rotate_deg(self._tilt + rng.normal(0, 4))
        .scale(self._height * self._width, self._height)
        .scale(*rng.uniform(0.9, 1.1, 2))
        .translate(*(SIZE / 2 + rng.normal(0, 1, 2)))
    )
    graphics = self._paper.new_gc()
    graphics.set_linewidth(self._pen)
    self._paper.clear()
    self._paper.draw_path(
        graphics,
        path_lib.Path(bent, path.codes),
        place,
        (0.0, 0.0, 0.0),
    )
    graphics.restore()
    ink = np.asarray(self._paper.buffer_rgba())[..., 3]
    return 1 - ink.astype(np.float32) / np.float32(255)
