# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Guide and reference: links lead somewhere, and public names say what they do.

`make docs` builds the site from the same pages, and `make test-site` looks at it.
Nothing is fetched: of an address in the net only its form is looked at.
"""

import collections
import importlib
import inspect
import pathlib
import pkgutil
import re
import types
from urllib import parse

from absl.testing import absltest
from absl.testing import parameterized

import tff_dp
from tff_dp import systems

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_PAGES = sorted([*_ROOT.glob('*.md'), *_ROOT.glob('docs/**/*.md')])
_SENTENCE = re.compile(r'[A-Z`].*\.$', re.MULTILINE)
_LINK = re.compile(r'\]\(([^)\s]+)\)')
_CODE = re.compile(r'`([^`\n]+)`')
_BLOCK = re.compile(r'^```.*?^```$', re.MULTILINE | re.DOTALL)
_TAG = re.compile(r'<(?!!--|/?(?:details|summary|sub|sup|br)\b)[a-zA-Z][^>\n]*>')
# What code about this library may begin with, apart from `tff_dp`.
_HEADS = frozenset(tff_dp.__all__).union(
    module.name for module in pkgutil.iter_modules(tff_dp.__path__) if module.ispkg
)
# Their names are on the pages of others.
_ELSEWHERE = frozenset({'tff_dp', 'tff_dp.plans', 'tff_dp.systems'})


def _packages(name: str = 'tff_dp') -> dict[str, types.ModuleType]:
  """Returns a package and the packages below it that offer names."""
  package = importlib.import_module(name)
  found = {name: package}
  for module in pkgutil.iter_modules(package.__path__):
    below = f'{name}.{module.name}'
    if module.ispkg and hasattr(importlib.import_module(below), '__all__'):
      found |= _packages(below)
  return found


def _public_objects() -> dict[str, object]:
  """Returns what the packages offer, and the packages, by their paths."""
  found = {}
  for path, package in _packages().items():
    found[path] = package
    for name in package.__all__:
      value = getattr(package, name)
      # A system is also offered under a shorter path.
      if not hasattr(value, '__path__'):
        found[f'{path}.{name}'] = value
  return found


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


def _anchors(text: str) -> set[str]:
  """Returns the anchors that GitHub, and so the site, gives to headings."""
  found, count = set(), collections.Counter()
  for heading in re.findall(r'^#+ (.*)$', _BLOCK.sub('', text), re.MULTILINE):
    heading = re.sub(r'\]\([^)]*\)', '', heading).lower()
    anchor = re.sub(r'[^\w\- ]', '', heading).replace(' ', '-')
    found.add(f'{anchor}-{count[anchor]}' if count[anchor] else anchor)
    count[anchor] += 1
  return found


def _is_stale(code: str) -> bool:
  """Says whether code begins with a name of ours that does not exist."""
  head, *rest = re.match(r'[\w.]*', code)[0].strip('.').split('.')
  if head in _HEADS:
    head = f'tff_dp.{head}'
  if not rest or head.partition('.')[0] != 'tff_dp':
    return False
  name = '.'.join([head, *rest])
  try:
    pkgutil.resolve_name(name)
  except (AttributeError, ImportError):
    # What belongs to another stack cannot be loaded here, only looked for.
    parts = name.split('.')
    if parts[1] in systems.FOLDERS:
      parts.insert(1, 'systems')
    module, parent = (
        _ROOT.joinpath(*where).with_suffix('.py') for where in (parts, parts[:-1])
    )
    return not module.exists() and not (
        parent.exists() and f'class {parts[-1]}(' in parent.read_text()
    )
  return False


def _leads_to_its_new_name(code: str) -> bool:
  """Says whether an old name of a package raises an error with the new one."""
  try:
    pkgutil.resolve_name(f'tff_dp.{code.removeprefix("tff_dp.")}')
  except ImportError as error:
    return 'that is tff_dp.' in str(error)
  except AttributeError:
    return False
  return True


def _stale_codes(prose: str) -> list[str]:
  """Returns the names of ours that do not exist, each once."""
  return [code for code in dict.fromkeys(_CODE.findall(prose)) if _is_stale(code)]


def _stale_changes(prose: str) -> list[str]:
  """Returns the names that a changelog says exist, and that do not exist.

  A name may be old if an entry says that it is gone, stands under "Removed", or
  if the name's error has the new one.
  """
  text = re.sub(r'^### Removed\n.*?(?=^##|\Z)', '', prose, flags=re.M | re.S)
  entries = re.split(r'^(?=- |#)', text, flags=re.M)
  kept = '\n'.join(entry for entry in entries if not re.search(r'\bgone\b', entry))
  return [code for code in _stale_codes(kept) if not _leads_to_its_new_name(code)]


def _problems(page: pathlib.Path) -> list[str]:
  """Returns what is wrong with a page, a line each."""
  text = page.read_text()
  prose = _BLOCK.sub('', text)
  found = []
  for target in _LINK.findall(prose):
    url = parse.urlsplit(target)
    if url.scheme or url.netloc:
      if url.scheme not in ('http', 'https') or '.' not in url.netloc:
        found.append(f'{target} is no address')
      continue
    other = page.parent / url.path if url.path else page
    if not other.is_file():
      found.append(f'{target} leads nowhere')
    elif url.fragment and url.fragment not in _anchors(other.read_text()):
      found.append(f'{target} has no such anchor')
  stale = _stale_changes if page.stem == 'CHANGELOG' else _stale_codes
  found += [f'`{code}` does not exist' for code in stale(prose)]
  # A browser shows nothing for it.
  found += [
      f'{tag} is taken for a tag; put it into backquotes'
      for tag in _TAG.findall(re.sub(r'^    .*$', '', _CODE.sub('', prose), flags=re.M))
  ]
  return found


class DocsLinksTest(parameterized.TestCase):

  def test_pages(self):
    wrong = [
        f'{page.relative_to(_ROOT)}: {problem}'
        for page in _PAGES
        for problem in _problems(page)
    ]
    self.assertEmpty(wrong)

  @parameterized.parameters(
      ('[x](none.md)', 'none.md leads nowhere'),
      ('![x](none.png)', 'none.png leads nowhere'),
      ('[x](#none)', '#none has no such anchor'),
      ('[x](other.md#none)', 'other.md#none has no such anchor'),
      ('[x](https://nowhere)', 'https://nowhere is no address'),
      ('`tff_dp.accounting.none`', '`tff_dp.accounting.none` does not exist'),
      ('`program.none(1)`', '`program.none(1)` does not exist'),
      ('`plans.none`', '`plans.none` does not exist'),
      ('`dp_ftrl.flower.None`', '`dp_ftrl.flower.None` does not exist'),
      ('<z, v>', '<z, v> is taken for a tag; put it into backquotes'),
  )
  def test_says_what_is_wrong(self, markdown, problem):
    folder = pathlib.Path(self.create_tempdir().full_path)
    (folder / 'other.md').write_text('# Other')
    (folder / 'page.md').write_text(f'# Page\n\n{markdown}\n')
    self.assertEqual(_problems(folder / 'page.md'), [problem])

  def test_changelog_has_old_names_only_of_what_is_gone(self):
    folder = pathlib.Path(self.create_tempdir().full_path)
    page = folder / 'CHANGELOG.md'
    page.write_text(
        '# Changelog\n\n### Added\n- `plans.none` is new.\n'
        '- `plans.other` is\n  gone.\n- `accounting.SiloBudget` is in silos.\n\n'
        '### Removed\n- `plans.removed`.\n\n### Fixed\n- `plans.fixed`.\n'
    )
    self.assertEqual(
        _problems(page),
        ['`plans.none` does not exist', '`plans.fixed` does not exist'],
    )

  @parameterized.parameters(
      ('A `name()`, and more', 'a-name-and-more'),
      ('1. k_t & such - or not', '1-k_t--such---or-not'),
      ('[Linked](page.md)', 'linked'),
      ('Twice\n\n## Twice', 'twice-1'),
  )
  def test_anchors_are_those_of_github(self, heading, anchor):
    self.assertIn(anchor, _anchors(f'# Page\n\n## {heading}\n'))

  def test_every_page_is_in_the_navigation(self):
    listed = set()
    for page in _PAGES:
      for tree in re.findall(
          r'^```{toctree}\n(.*?)^```', page.read_text(), re.M | re.S
      ):
        for line in re.findall(r'^[^:\n].*$', tree, re.M):
          name = re.sub(r'.*<(.*)>', r'\1', line)
          listed.update(page.parent.glob(f'{name}.[mi]*'))
    pages = {*_PAGES, *_ROOT.glob('colab/*.ipynb')}
    self.assertEqual(
        {path.resolve() for path in listed}, pages - {_ROOT / 'docs' / 'index.md'}
    )

  def test_contributing_names_every_stored_output(self):
    text = (_ROOT / 'CONTRIBUTING.md').read_text()
    rows = re.findall(r'^\| (`tests/.*?) \|', text, re.M)
    named = {_ROOT / code for code in _CODE.findall(' '.join(rows))}
    stored = {
        path
        for path in (_ROOT / 'tests').rglob('*.*')
        if path.suffix in ('.csv', '.json', '.npz', '.pb', '.txt', '.xz')
    }
    self.assertEqual(
        named, {path if path in named else path.parent for path in stored}
    )

  def test_every_public_name_is_in_the_reference_once(self):
    text = '\n'.join(
        page.read_text() for page in (_ROOT / 'docs' / 'reference').glob('*.md')
    )
    documented = collections.Counter()
    for path in re.findall(r'automodule:: (\S+)', text):
      module = importlib.import_module(path)
      names = getattr(module, '__all__', ())
      documented.update(id(getattr(module, name)) for name in names)
      documented[id(module)] += 1
    for path in re.findall(r'auto(?:exception|function):: (\S+)', text):
      documented[id(pkgutil.resolve_name(path))] += 1
    for path, value in _public_objects().items():
      if path not in _ELSEWHERE and not path.endswith('__version__'):
        self.assertIn(id(value), documented, path)
        if not inspect.ismodule(value):
          self.assertEqual(documented[id(value)], 1, path)

  def test_public_names_begin_with_a_sentence(self):
    wrong = [
        name
        for name, value in _public_objects().items()
        # A constant has none of its own.
        if inspect.ismodule(value) or callable(value)
        if not _SENTENCE.match(_own_docstring(value))
    ]
    self.assertEmpty(wrong)

  def test_public_members_are_documented(self):
    wrong = [
        f'{name}.{member}'
        for name, value in _public_objects().items()
        if inspect.isclass(value)
        for member, defined in inspect.getmembers(value)
        if not member.startswith('_') and _is_ours(defined)
        if not inspect.getdoc(defined)
    ]
    self.assertEmpty(wrong)


if __name__ == '__main__':
  absltest.main()
