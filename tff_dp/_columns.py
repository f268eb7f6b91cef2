# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The two stacks that this release was checked on, called columns.

Column A is the reference: Python 3.11 with everything at the versions that
TensorFlow Federated (TFF) asks for. Column B is current: a newer Python with a
newer TensorFlow, where TFF is imported through `_shim`. The locks pin both; a
test compares them with what is written here.
"""

import dataclasses
import sys

# The same in both columns.
TFF = '0.87.0'


@dataclasses.dataclass(frozen=True)
class Column:
  """What one stack consists of.

  Attributes:
    letter: 'A' or 'B'.
    name: 'reference' or 'current'.
    pythons: Versions of Python, (major, minor), the oldest first.
    lock: The file that pins every package.
    packages: Distribution -> checked versions, the one in the lock first.
    present: Distributions of which any version that is there will do: what TFF
      and we import, where no package's requirements bring it along.
    has_worker: Whether TFF's C++ worker, and with it the native context, works.
    recipe: How to get all of it, as the end of a sentence.
  """

  letter: str
  name: str
  pythons: tuple[tuple[int, int], ...]
  lock: str
  packages: dict[str, tuple[str, ...]]
  present: tuple[str, ...]
  has_worker: bool
  recipe: str

  @property
  def title(self) -> str:
    """For example 'A (reference)'."""
    return f'{self.letter} ({self.name})'

  @property
  def python_versions(self) -> str:
    """For example '3.12 or 3.13'."""
    return ' or '.join('.'.join(map(str, python)) for python in self.pythons)


REFERENCE = Column(
    letter='A',
    name='reference',
    pythons=((3, 11),),
    lock='requirements.lock',
    packages={
        'tensorflow': ('2.14.1',),
        # TFF 0.87 asks for jaxlib 0.4.14, which the package index no longer
        # has. It imports and runs with this pair.
        'jax': ('0.4.13',),
        'jaxlib': ('0.4.13',),
        'tensorflow-privacy': ('0.9.0',),
        'dp-accounting': ('0.4.3',),
        'numpy': ('1.25.2',),
        # Jupyter brings the second one; see _compat.
        'typing-extensions': ('4.5.0', '4.16.0'),
    },
    present=(),
    has_worker=True,
    recipe=(
        'in a checkout of tff_dp, run `make environment`: it puts Python 3.11'
        ' and every package at its tested version into .venv; then use'
        ' .venv/bin/python'
    ),
)
CURRENT = Column(
    letter='B',
    name='current',
    pythons=((3, 12), (3, 13)),
    lock='requirements.current.lock',
    packages={
        'tensorflow': ('2.21.0',),
        'tf-keras': ('2.21.0',),
        'tensorflow-privacy': ('0.9.0',),
        'tensorflow-probability': ('0.25.0',),
        'google-vizier': ('0.1.11',),
        'dp-accounting': ('0.6.0', '0.4.3'),
        'numpy': ('2.5.5',),
    },
    present=(
        'attrs',
        'cachetools',
        'dm-tree',
        'googleapis-common-protos',
        'grpcio',
        'portpicker',
        'scikit-learn',
        'tensorboard',
    ),
    has_worker=False,
    recipe=(
        'in a checkout of tff_dp, run `make environment-current`: it puts every'
        ' package at its tested version into .venv-current, with Python 3.13 or'
        ' 3.12, whichever it finds first; then use .venv-current/bin/python'
    ),
)


def here() -> Column:
  """Returns the column of the running Python, the nearest if it has none."""
  is_reference = sys.version_info[:2] <= REFERENCE.pythons[-1]
  return REFERENCE if is_reference else CURRENT
