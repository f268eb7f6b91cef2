# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Guide and reference: links lead somewhere, and public names say what they do.

`make docs` builds both with the same code. Nothing is fetched: of an address in
the net only its form is looked at.
"""

import importlib.util
import inspect
import pathlib
import re

from absl.testing import absltest
from absl.testing import parameterized

_ROOT = pathlib.Path(__file__).resolve().parents[1]
# `tools` is no package: it is not imported by anything that is shipped.
_SPEC = importlib.util.spec_from_file_location(
    'build_docs', _ROOT / 'tools' / 'build_docs.py'
)
build_docs = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(build_docs)


_SENTENCE = re.compile(r'[A-Z`].*\.$', re.MULTILINE)


def _own_docstring(value) -> str:
  """Returns what is written under a name, not what it inherits."""
  if inspect.isclass(value):
    text = vars(value).get('__doc__')
    # What a dataclass without a docstring makes up.
    return '' if (text or '').startswith(f'{value.__name__}(') else text or ''
  return value.__doc__ or ''


def _is_ours(member) -> bool:
  """Says whether a member is a method or property of this library."""
  defined = member.fget if isinstance(member, property) else member
  if not (inspect.isroutine(defined) or inspect.isclass(defined)):
    return False
  return (getattr(defined, '__module__', '') or '').startswith('tff_dp')


class DocsLinksTest(parameterized.TestCase):

  def _folder(self) -> pathlib.Path:
    return pathlib.Path(self.create_tempdir().full_path)

  def _guide(self, page: str) -> pathlib.Path:
    """Returns the guide of a small repository with this docs/page.md."""
    root, output = self._folder(), self._folder()
    (root / 'docs').mkdir()
    (root / 'README.md').write_text('# Entrance')
    (root / 'CHANGELOG.md').write_text('# Changes\n\n`tff_dp.once_there`')
    (root / 'docs' / 'page.md').write_text(page)
    build_docs.write_guide(root, output, {})
    return output

  def test_links_of_the_guide(self):
    output = self._folder()
    build_docs.write_guide(_ROOT, output, {})
    self.assertEmpty(build_docs.problems(output))
    for page in _ROOT.glob('docs/*.md'):
      self.assertTrue((output / 'docs' / f'{page.stem}.html').is_file())

  def test_reference_shows_public_paths(self):
    output = self._folder()
    self.assertEmpty(build_docs.build(output))
    for page, anchor in (
        ('tff_dp', 'DpFtrlPlan.calibrated'),
        ('tff_dp/accounting', 'amplify'),
        ('tff_dp/systems/dp_ftrl', 'build_dp_ftrl'),
        ('tff_dp/systems/silos', 'build_noisy_mb_sgd'),
        # Defined by a base class that is public under another module.
        ('tff_dp/mechanisms', 'Blt.describe'),
    ):
      text = (output / f'{page}.html').read_text()
      self.assertIn(f'id="{anchor}"', text)
    self.assertIn(
        'href="../tff_dp/systems/dp_ftrl.html#build_dp_ftrl"',
        (output / 'docs' / 'dp_ftrl.html').read_text(),
    )

  @parameterized.parameters(
      ('[x](none.md)', 'none.html leads nowhere'),
      ('![x](none.png)', 'none.png leads nowhere'),
      ('[x](#none)', '#none has no such anchor'),
      ('[x](../README.md#none)', '../index.html#none has no such anchor'),
      ('[x](https://nowhere)', 'https://nowhere is no address'),
      ('`tff_dp.accounting.none`', '`tff_dp.accounting.none` does not exist'),
      ('`program.none(1)`', '`program.none(1)` does not exist'),
      ('<z, v>', '<z,> is taken for a tag; put it into backquotes'),
  )
  def test_says_what_is_wrong(self, markdown, problem):
    output = self._guide(f'# Page\n\n{markdown}\n')
    self.assertEqual(
        build_docs.problems(output), [f'docs/page.html: {problem}']
    )

  @parameterized.parameters(
      ('A `name()`, and more', 'a-name-and-more'),
      ('1. k_t & such - or not', '1-k_t--such---or-not'),
      ('Twice\n\n## Twice', 'twice-1'),
  )
  def test_anchors_are_those_of_github(self, heading, anchor):
    output = self._guide(f'# Page\n\n[x](#{anchor})\n\n## {heading}\n')
    self.assertEmpty(build_docs.problems(output))

  def test_public_names_begin_with_a_sentence(self):
    wrong = [
        name
        for name, value in build_docs.public_objects().items()
        # A constant has none of its own.
        if inspect.ismodule(value) or callable(value)
        if not _SENTENCE.match(_own_docstring(value))
    ]
    self.assertEmpty(wrong)

  def test_public_members_are_documented(self):
    wrong = [
        f'{name}.{member}'
        for name, value in build_docs.public_objects().items()
        if inspect.isclass(value)
        for member, defined in inspect.getmembers(value)
        if not member.startswith('_') and _is_ours(defined)
        if not inspect.getdoc(defined)
    ]
    self.assertEmpty(wrong)


if __name__ == '__main__':
  absltest.main()
