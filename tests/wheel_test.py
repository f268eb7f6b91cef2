# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The wheel in an empty environment does what README shows, without a checkout.

`make test-wheel` runs this; it downloads 3 GB. Nothing of it is part of `make test`.
"""

import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import venv

from absl.testing import absltest

_ROOT = pathlib.Path(__file__).parents[1]
# Where the environment is made, under the root.
_FOLDER = os.environ.get('WHEEL', '')
# README's Python, on the model and the clients that its test gives it.
_README_PYTHON = """
import pathlib, re
import tff_dp
from tests import docs_names

assert 'site-packages' in tff_dp.__file__, tff_dp.__file__
blocks = re.findall(r'```python\\n(.*?)```', pathlib.Path('README.md').read_text(), re.S)
assert blocks
with docs_names.few_rounds():
  exec('\\n'.join(blocks), docs_names.of('README.md'))
"""
# What README names without flags.
_COMMANDS = (
    'doctor',
    'account runs/mine',
    'account runs/mine --plot epsilon.png',
    'statement runs/mine --format html',
    'calibrate dp-ftrl --rounds 100 --min-index-gap 20 --epsilon 2 --delta 1e-6',
    'compare --rounds 64 --min-index-gap 8',
    'advise --population 60000 --reports-per-round 100 --rounds 1000'
    ' --parameters 10000 --epsilon 8 --delta 1e-6 --trust server',
    'export runs/mine --output bundle',
    'export --verify bundle',
)


def _blocks(language: str) -> list[str]:
  """Returns the fenced blocks of README in a language."""
  text = (_ROOT / 'README.md').read_text()
  return re.findall(rf'^```{language}\n(.*?)^```', text, re.M | re.S)


@absltest.skipIf(not _FOLDER, 'make test-wheel runs it')
class WheelTest(absltest.TestCase):

  def _run(self, *words, folder: pathlib.Path = _ROOT) -> str:
    done = subprocess.run(
        list(map(str, words)),
        cwd=folder,
        # Nothing of this process's own packages is to be seen.
        env={
            name: value
            for name, value in os.environ.items()
            if name not in ('PYTHONPATH', 'VIRTUAL_ENV')
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    self.assertEqual(done.returncode, 0, f'{words}\n{done.stdout}{done.stderr}')
    return done.stdout

  def test_does_what_readme_shows(self):
    folder = _ROOT / _FOLDER
    shutil.rmtree(folder, ignore_errors=True)
    away = folder / 'away'
    away.mkdir(parents=True)
    pip = (sys.executable, '-m', 'pip')
    self._run(
        *pip, 'wheel', '-q', '--no-deps', '--no-build-isolation', '-w', folder, '.'
    )
    (wheel,) = folder.glob('*.whl')
    venv.create(folder / 'venv', with_pip=True)
    python = folder / 'venv/bin/python'

    # The lines that README prints, with the wheel in place of the checkout.
    (lines,) = [block for block in _blocks('bash') if '\npip install' in block]
    for line in lines.splitlines():
      words = shlex.split(line)
      self.assertEqual(words[:2], ['pip', 'install'])
      words = [str(wheel) if word == '.' else word for word in words]
      self._run(python, '-m', *words, '-q')

    for name in (
        'README.md',
        'tests/__init__.py',
        'tests/docs_names.py',
        'tests/learning/__init__.py',
        'tests/learning/small_model.py',
    ):
      (away / name).parent.mkdir(parents=True, exist_ok=True)
      shutil.copy(_ROOT / name, away / name)
    self._run(python, '-c', _README_PYTHON, folder=away)
    page = (away / 'runs/mine/release/report.html').read_text()
    self.assertIn('<svg ', page)

    command = folder / 'venv/bin/tff-dp'
    (shown,) = [each for each in _blocks('bash') if 'tff-dp account' in each]
    words = shlex.split(shown.replace('\\\n', ' '))
    self.assertEqual(words[0], '.venv/bin/tff-dp')
    out = self._run(command, *words[1:], folder=away)
    self.assertStartsWith(out, 'epsilon 17.67 at delta 1e-06')
    for each in _COMMANDS:
      with self.subTest(each):
        self.assertNotEmpty(self._run(command, *each.split(), folder=away))
    for kind in re.findall(r'`tff-dp account ([a-z-]+)`', (_ROOT / 'README.md').read_text()):
      with self.subTest(kind):
        self._run(command, 'account', kind, '--help', folder=away)


if __name__ == '__main__':
  absltest.main()
