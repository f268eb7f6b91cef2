# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Builds guide and API reference into build/docs, and checks their links.

  python tools/build_docs.py

The reference shows what the packages offer under the path at which they offer
it, wherever it is defined. Links that lead nowhere, and names in backquotes
that begin with tff_dp or one of its packages and do not exist, are printed and
end the command with 1.
"""

import ast
import collections
import contextlib
import dataclasses
import functools
import html.parser
import importlib
import importlib.util
import os
import pathlib
import pkgutil
import re
import shutil
import sys
import types
from unittest import mock
from urllib import parse
import warnings

import markdown2
import pdoc
from pdoc import render
from pdoc import render_helpers

import tff_dp

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_TEMPLATES = pathlib.Path(__file__).parent / 'docs_templates'
# HTML that nothing closes.
_WITHOUT_END = ('br', 'hr', 'img', 'input', 'link', 'meta', 'wbr')

render.configure(
    docformat='google', show_source=False, template_directory=_TEMPLATES
)


def public_names(package: types.ModuleType) -> list[str]:
  """Returns the names that a package offers, in its order.

  They are its `__all__`, or else what its `__init__` defines, or else what it
  imports by name, and the packages below it that offer names themselves.
  """
  names = [
      name
      for name in getattr(package, '__all__', ())
      # The same package by a shorter name has no page of its own.
      if getattr(getattr(package, name), '__name__', '').rpartition('.')[0]
      in ('', package.__name__)
      or not isinstance(getattr(package, name), types.ModuleType)
  ]
  if not hasattr(package, '__all__'):
    imported, defined = [], []
    for node in ast.parse(pathlib.Path(package.__file__).read_text()).body:
      if isinstance(node, ast.ImportFrom):
        imported += [alias.asname or alias.name for alias in node.names]
      elif isinstance(node, (ast.ClassDef, ast.FunctionDef)):
        defined.append(node.name)
      elif isinstance(node, ast.Assign):
        defined += [ast.unparse(target) for target in node.targets]
    # One that defines something imports for its own use.
    names = [name for name in defined if not name.startswith('_')]
    names = names or [name for name in imported if not name.startswith('_')]
  for module in pkgutil.iter_modules(package.__path__):
    below = f'{package.__name__}.{module.name}'
    if module.ispkg and public_names(importlib.import_module(below)):
      names.append(module.name)
  return list(dict.fromkeys(names))


def public_objects(name: str = 'tff_dp') -> dict[str, object]:
  """Returns a package and all that it offers, packages too, by their paths."""
  package = importlib.import_module(name)
  objects = {name: package}
  for inner in public_names(package):
    value = getattr(package, inner)
    if hasattr(value, '__path__'):
      objects |= public_objects(f'{name}.{inner}')
    else:
      objects[f'{name}.{inner}'] = value
  return objects


class _Markdown(markdown2.Markdown):
  """Markdown whose headings have the anchors that GitHub gives them."""

  def header_id_from_text(self, text, prefix, n=None):
    del prefix, n
    anchor = re.sub(r'[^\w\- ]', '', text.lower()).replace(' ', '-')
    earlier = self._count_from_header_id[anchor]
    self._count_from_header_id[anchor] += 1
    return f'{anchor}-{earlier}' if earlier else anchor


@dataclasses.dataclass(frozen=True)
class _Page:
  """A page of the guide.

  Attributes:
    root: The repository.
    source: Its path there.
  """

  root: pathlib.Path
  source: pathlib.Path

  @functools.cached_property
  def file(self) -> str:
    """Its path in the output: the same tree, where README is the entrance."""
    if self.source.name == 'README.md':
      return 'index.html'
    return str(self.source.with_suffix('.html'))

  @functools.cached_property
  def title(self) -> str:
    return self._text.partition('\n')[0].removeprefix('# ')

  @functools.cached_property
  def module(self) -> pdoc.doc.Module:
    """Where pdoc takes the page to be, from which it makes relative links."""
    name = self.file.removesuffix('.html').replace('/', '.')
    return pdoc.doc.Module(types.ModuleType(name))

  @functools.cached_property
  def html(self) -> str:
    extras = render_helpers.markdown_extensions | {'header-ids': None}
    text = _Markdown(
        extras=extras, link_patterns=render_helpers.markdown_link_patterns
    ).convert(self._text)
    text = re.sub(r'(href="(?:\.\./)*)README\.md', r'\1index.html', text)
    return re.sub(r'(href="[^":]+)\.md(?=["#])', r'\1.html', text)

  def link_to(self, file: str) -> str:
    return os.path.relpath(file, self.source.parent)

  @functools.cached_property
  def _text(self) -> str:
    return (self.root / self.source).read_text()


class _Html(html.parser.HTMLParser):
  """What a file points to, can be pointed to, names as code, and leaves open.

  A browser takes `<x, y>` outside of backquotes for a tag, and shows nothing.
  """

  def __init__(self, text: str):
    super().__init__()
    self.targets, self.anchors, self.code = [], set(), []
    self.open = collections.Counter()
    self._in_code = False
    self.feed(text)

  def handle_starttag(self, tag, attrs):
    attrs = dict(attrs)
    self.anchors.add(attrs.get('id'))
    self.targets += [attrs[key] for key in ('href', 'src') if key in attrs]
    self.open[tag] += tag not in _WITHOUT_END
    if tag == 'code':
      self._in_code = True
      self.code.append('')

  def handle_endtag(self, tag):
    self.open[tag] -= 1
    self._in_code = self._in_code and tag != 'code'

  def handle_data(self, data):
    if self._in_code:
      self.code[-1] += data


def write_guide(
    root: pathlib.Path,
    output: pathlib.Path,
    modules: dict[str, pdoc.doc.Module],
) -> None:
  """Writes README, docs and other pages, and the files they point to.

  Args:
    root: The repository.
    output: Folder for the pages.
    modules: Documented modules by name, to which pages are linked.
  """
  docs = sorted(root.glob('docs/*.md'))
  for name in ('ARCHITECTURE.md', 'SECURITY.md', 'CONTRIBUTING.md'):
    docs += root.glob(name)
  pages = [
      _Page(root, source.relative_to(root))
      for source in (root / 'README.md', *docs, root / 'CHANGELOG.md')
  ]
  for page in pages:
    file = output / page.file
    file.parent.mkdir(parents=True, exist_ok=True)
    text = render.env.get_template('page.html.jinja2').render(
        page=page,
        pages=pages,
        all_modules=modules,
        # For pdoc's filter that makes links of names.
        module=page.module,
        is_public=str,
    )
    for name, module in modules.items():
      # pdoc takes the shorter name of a package for that of a page.
      short, full = (
          f'{each.replace(".", "/")}.html' for each in (name, module.modulename)
      )
      text = text.replace(short, full)
    file.write_text(text)
    for target in _Html(page.html).targets:
      path = parse.urlsplit(target).path
      shown = (root / page.source).parent / path
      if shown.is_file() and shown.resolve().is_relative_to(root.resolve()):
        copy = file.parent / path
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(shown, copy)


def write_reference(output: pathlib.Path) -> dict[str, pdoc.doc.Module]:
  """Writes the reference, and returns its modules by name."""
  objects = public_objects()
  modules = {
      name: value
      for name, value in objects.items()
      if isinstance(value, types.ModuleType)
  }
  with contextlib.ExitStack() as stack:
    for module in modules.values():
      if hasattr(module, '__path__'):
        # What pdoc goes by: without it, only what the file itself defines.
        names = mock.patch.object(
            module, '__all__', public_names(module), create=True
        )
        stack.enter_context(names)
    # Such as a name that is offered and cannot be loaded.
    stack.enter_context(
        warnings.catch_warnings(action='error', category=UserWarning)
    )
    pdoc.pdoc('tff_dp', output_directory=output)
  found = {name: pdoc.doc.Module.from_name(name) for name in modules}
  for name in tff_dp.__all__:
    value = getattr(tff_dp, name)
    if isinstance(value, types.ModuleType):
      # Shorter names lead to the same pages.
      found.setdefault(f'tff_dp.{name}', found[value.__name__])
  return found


def _is_stale(code: str) -> bool:
  """Says whether code begins with a name of ours that does not exist."""
  head, *rest = re.match(r'[\w.]*', code)[0].strip('.').split('.')
  if head in tff_dp.__all__:
    head = f'tff_dp.{head}'
  if not rest or head.partition('.')[0] != 'tff_dp':
    return False
  name = '.'.join([head, *rest])
  try:
    pkgutil.resolve_name(name)
  except (AttributeError, ImportError):
    # What belongs to another stack cannot be loaded here, only looked for.
    with contextlib.suppress(ImportError):
      return importlib.util.find_spec(name) is None
    return True
  return False


def problems(output: pathlib.Path) -> list[str]:
  """Returns what is wrong with the pages in a folder, a line each."""
  pages = {
      path.resolve(): _Html(path.read_text())
      for path in sorted(output.rglob('*.html'))
  }
  found = []
  for path, page in pages.items():
    where = path.relative_to(output.resolve())
    for target in dict.fromkeys(page.targets):
      url = parse.urlsplit(target)
      if url.scheme in ('data', 'mailto'):
        continue
      if url.scheme or url.netloc:
        if url.scheme not in ('http', 'https') or '.' not in url.netloc:
          found.append(f'{where}: {target} is no address')
        continue
      other = (path.parent / url.path).resolve() if url.path else path
      if not other.is_file():
        found.append(f'{where}: {target} leads nowhere')
      elif url.fragment and url.fragment not in pages[other].anchors:
        found.append(f'{where}: {target} has no such anchor')
    found += [
        f'{where}: `{code}` does not exist'
        for code in dict.fromkeys(page.code)
        # What changed may be gone.
        if path.stem != 'CHANGELOG' and _is_stale(code)
    ]
    found += [
        f'{where}: <{tag}> is taken for a tag; put it into backquotes'
        for tag, left in page.open.items()
        if left > 0
    ]
  return found


def build(output: pathlib.Path) -> list[str]:
  """Writes everything into a folder and returns its `problems`."""
  write_guide(_ROOT, output, write_reference(output))
  return problems(output)


def main() -> int:
  output = _ROOT / 'build' / 'docs'
  shutil.rmtree(output, ignore_errors=True)
  found = build(output)
  for line in found:
    print(f'error: {line}', file=sys.stderr)
  print(output / 'index.html')
  return 1 if found else 0


if __name__ == '__main__':
  sys.exit(main())
