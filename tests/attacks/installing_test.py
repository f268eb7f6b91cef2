# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Nobody is told to install a name that anybody may own, or without hashes."""

import json
import pathlib
import re

from absl.testing import absltest

_ROOT = pathlib.Path(__file__).parents[2]
_FOLDERS = ('colab', 'docs', 'tasks', 'tff_dp', 'tools')
_KINDS = ('.ipynb', '.md', '.py', '.sh', '.in')
# Up to the end of the line, or of the next one after a backslash.
_COMMAND = re.compile(
    r'\bpip install\b((?:\\\n|[^\n`])*)'
)
# This package, from the checkout.
_CHECKOUT = re.compile(r'--no-deps --no-build-isolation \.')


def _files() -> list[pathlib.Path]:
  found = [p for p in _ROOT.iterdir() if p.suffix in _KINDS]
  for folder in _FOLDERS:
    found += [p for p in (_ROOT / folder).rglob('*') if p.suffix in _KINDS]
  return found


def _text(path: pathlib.Path) -> str:
  text = path.read_text()
  if path.suffix != '.ipynb':
    return text
  return '\n'.join(
      ''.join(cell['source']) for cell in json.loads(text)['cells']
  )


def _problems(text: str) -> list[str]:
  """Returns the commands that install without hashes, and names of ours."""
  # A string of Python that goes on in the next line.
  text = re.sub(r"'\n *f?'", '', text)
  found = re.findall(r"tff-dp\[\w+\]|install (?:-\S+ )*'?tff-dp\b", text)
  for command in _COMMAND.findall(text):
    if '"${venv}' in command or '--no-input' in command:
      continue  # tools/make_environment.sh, which environment_test looks at.
    if '--require-hashes' not in command and not _CHECKOUT.search(command):
      found.append(command.strip())
  return found


class InstallingTest(absltest.TestCase):

  def test_every_command_has_hashes(self):
    files = _files()
    self.assertGreater(len(files), 100)
    found = {
        str(path.relative_to(_ROOT)): problems
        for path in files
        if (problems := _problems(_text(path)))
    }
    self.assertEqual(found, {})

  def test_it_would_be_seen(self):
    for text in (
        "pip install 'tff-dp[ray]'",
        "Dask: pip install 'tff-dp[dask]'",
        'pip install tff-dp',
        '.venv/bin/pip install ipykernel',
        '%pip install -q --no-deps mlxtend==0.25.0',
        "pip install '.[cuda]'",
        'pip install -r requirements.benchmark.in',
        "'`pip install'\n      ' x`'",
    ):
      self.assertNotEmpty(_problems(text), text)
    for text in (
        'pip install --no-deps --require-hashes -r requirements.lock',
        'pip install --no-deps \\\n  --require-hashes -r requirements.lock',
        'pip install --no-deps --no-build-isolation .',
    ):
      self.assertEmpty(_problems(text), text)

  def test_the_package_has_no_extras(self):
    # An extra has pins but no hashes.
    self.assertNotIn('extras_require', (_ROOT / 'setup.py').read_text())


if __name__ == '__main__':
  absltest.main()
