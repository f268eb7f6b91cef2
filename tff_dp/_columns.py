# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The three stacks that this release was tested on, called columns.

Column A is the reference: Python 3.11 with everything at the versions that
TensorFlow Federated (TFF) asks for. Column B is current: a newer Python with a
newer TensorFlow, where TFF is imported through `_shim`. Column C is like B,
with the older TensorFlow of stock Colab. The locks pin all packages. A test
compares them with the versions here.
"""

import dataclasses
import importlib.metadata
import sys

# The same in all columns.
TFF = '0.87.0'


@dataclasses.dataclass(frozen=True)
class Column:
  """The versions of one stack.

  Attributes:
    letter: Letter of the column: 'A', 'B' or 'C'.
    name: Name of the column: 'reference', 'current' or 'colab'.
    pythons: Versions of Python, (major, minor), the oldest first.
    lock: File that pins every package.
    own_lock: File that pins the packages that a user installs. In columns A and
      B it is `lock`. In column C it pins only the packages that Colab lacks.
    packages: Distribution -> checked versions, the one in the lock first.
    present: Distributions that must be installed, in any version. TFF or this
      package imports them, but no package's requirements install them.
    has_worker: Whether TFF's C++ worker, and with it the native context, works.
    recipe: Steps to install the stack, as the end of a sentence.
  """

  letter: str
  name: str
  pythons: tuple[tuple[int, int], ...]
  lock: str
  own_lock: str
  packages: dict[str, tuple[str, ...]]
  present: tuple[str, ...]
  has_worker: bool
  recipe: str

  @property
  def title(self) -> str:
    """Letter and name, such as 'A (reference)'."""
    return f'{self.letter} ({self.name})'

  @property
  def needs_shim(self) -> bool:
    """Whether TFF can only be imported through `_shim`."""
    return self.pythons[0] > REFERENCE.pythons[-1]

  @property
  def pip_words(self) -> tuple[str, str]:
    """Arguments of `pip` that install the lock, then tff_dp from its checkout.

    There are two calls, because pip refuses a folder if it checks hashes. TFF
    and tensorflow-privacy declare that they need a Python before 3.12. In
    columns B and C, pip is told to ignore that. README.md and the notebooks
    have the same lines, and a test compares them.
    """
    quiet = '-q ' if self is COLAB else ''
    newer = '--ignore-requires-python ' if self.needs_shim else ''
    return (
        f'install {quiet}--no-deps {newer}--require-hashes -r {self.own_lock}',
        f'install {quiet}--no-deps --no-build-isolation .',
    )

  @property
  def python_versions(self) -> str:
    """Versions of Python in words, such as '3.12 or 3.13'."""
    return ' or '.join('.'.join(map(str, python)) for python in self.pythons)


REFERENCE = Column(
    letter='A',
    name='reference',
    pythons=((3, 11),),
    lock='requirements.lock',
    own_lock='requirements.lock',
    packages={
        'tensorflow': ('2.14.1',),
        # TFF 0.87 asks for jaxlib 0.4.14, which the package index no longer
        # has. It imports and runs with this pair.
        'jax': ('0.4.13',),
        'jaxlib': ('0.4.13',),
        'tensorflow-privacy': ('0.9.0',),
        'dp-accounting': ('0.4.3',),
        'numpy': ('1.25.2',),
        # Jupyter brings the second version (see _compat).
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
    own_lock='requirements.current.lock',
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
# Any jax is accepted, because `_shim` inspects it.
COLAB = dataclasses.replace(
    CURRENT,
    letter='C',
    name='colab',
    pythons=((3, 13),),
    lock='requirements.colab.lock',
    own_lock='requirements.notebooks.lock',
    packages=CURRENT.packages | {
        'tensorflow': ('2.20.0',),
        'tf-keras': ('2.20.1',),
        'dp-accounting': ('0.6.0',),
        'numpy': ('2.1.3',),
    },
    recipe=(
        'on Colab, choose Runtime > Disconnect and delete runtime, then run the'
        ' notebook from its first cell on; elsewhere, in a checkout of tff_dp,'
        ' run `make environment-colab` and use .venv-colab/bin/python'
    ),
)


def here() -> Column:
  """Returns the column of the running Python, or the nearest one.

  If two columns share the Python version, the installed TensorFlow decides.
  """
  python = sys.version_info[:2]
  if python <= REFERENCE.pythons[-1]:
    return REFERENCE
  try:
    tensorflow = importlib.metadata.version('tensorflow')
  except importlib.metadata.PackageNotFoundError:
    return CURRENT
  (colab,) = COLAB.packages['tensorflow']
  is_colab = tensorflow.split('.')[:2] == colab.split('.')[:2]
  return COLAB if is_colab and python in COLAB.pythons else CURRENT
