# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The Python of README and docs runs as it stands.

The blocks of a page run in their order and share their names, as in a notebook.
`docs_names.py` holds what a page takes as given: the reader's own model and
clients. A number in a comment behind `print(...)` is what it prints. A line before a
block says why it is left out:

    <!-- skip: next "why" -->
"""

import contextlib
import io
import os
import pathlib
import re
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import pytest
import sybil
from sybil.parsers import markdown

from tests import docs_names
from tests.execution import conformance
from tff_dp import execution
from tff_dp.program.display import documents

_ROOT = pathlib.Path(__file__).resolve().parent.parent
_PYTHON = sybil.Sybil(
    parsers=[markdown.PythonCodeBlockParser(), markdown.SkipParser()]
)
_PRINTED = re.compile(r'^print\(.*\)  # ([\d.]+)(?: |$)', re.M)
_PAGES = {
    page.relative_to(_ROOT).as_posix(): _PYTHON.parse(page)
    for page in (_ROOT / 'README.md', *sorted(_ROOT.glob('docs/*.md')))
}


class DocsTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.addCleanup(os.chdir, os.getcwd())
    os.chdir(self.create_tempdir())
    execution.set_default_context()
    docs_names.write_files()
    # `execution` and `systems` test work at once.
    self.enterContext(conformance.in_loops())
    # `program` tests the pictures of runs.
    self.enterContext(mock.patch.object(documents, 'write'))

  @parameterized.named_parameters(
      (name, name) for name, page in _PAGES.items() if list(page.examples())
  )
  @pytest.mark.slow(
      cases=[name for name in _PAGES if name.startswith('docs/proofs_')]
  )
  def test_python_of(self, name):
    page = _PAGES[name]
    page.namespace.update(docs_names.of(name))
    with docs_names.few_rounds():
      for example in page.examples():
        with self.subTest(f'{name}:{example.line}'):
          out = io.StringIO()
          with contextlib.redirect_stdout(out):
            example.evaluate()
          said = _PRINTED.findall(str(example.parsed))
          printed = iter(out.getvalue().splitlines())
          for number in said:  # In this order, other lines may be between them.
            found = any(line.split(' ')[0] == number for line in printed)
            self.assertTrue(found, f'{number} is not in {out.getvalue()!r}')

  def test_pages_with_python_are_found(self):
    self.assertIn('README.md', _PAGES)
    self.assertNotEmpty(list(_PAGES['README.md'].examples()))


if __name__ == '__main__':
  absltest.main()
