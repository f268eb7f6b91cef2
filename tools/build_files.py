# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Writes the BUILD files from the modules and their imports.

  python tools/build_files.py            # rewrites what is out of date
  python tools/build_files.py --check    # only says what would change

One target per module, dependencies inside this repository only. The target of
an `__init__.py` has the name of its folder; an empty one has no target.
"""

import argparse
import ast
import pathlib
import sys

FOLDERS = ('benchmarks', 'tasks', 'tests', 'tff_dp')
_HEADER = """\
# Copyright 2026, The tff_dp Authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
# Written by `make build-files`.
"""


def targets(root: pathlib.Path) -> dict[pathlib.Path, str]:
  """Returns module path -> label, paths relative to `root`."""
  found = {}
  for folder in FOLDERS:
    for path in sorted((root / folder).rglob('*.py')):
      relative = path.relative_to(root)
      name = relative.stem
      if name == '__init__':
        if not path.read_text().strip():
          continue
        name = relative.parent.name
      found[relative] = f'//{relative.parent.as_posix()}:{name}'
  return found


def dependencies(
    root: pathlib.Path, known: dict[pathlib.Path, str]
) -> dict[str, set[str]]:
  """Returns label -> labels of the modules that it imports, at any time."""
  graph = {}
  for path, label in known.items():
    names = set()
    for node in ast.walk(ast.parse((root / path).read_text())):
      if isinstance(node, ast.Import):
        names.update(alias.name for alias in node.names)
      elif isinstance(node, ast.ImportFrom) and node.module:
        names.update(f'{node.module}.{alias.name}' for alias in node.names)
    labels = {_resolve(name, known) for name in names}
    graph[label] = labels - {None, label}
  return graph


def _resolve(name: str, known: dict[pathlib.Path, str]) -> str | None:
  """Returns the label for a dotted name, or None if it is not ours."""
  parts = name.split('.')
  # `from a.b import c` is the module a.b.c, or the name c in the module a.b.
  for length in (len(parts), len(parts) - 1):
    stem = '/'.join(parts[:length])
    for end in ('.py', '/__init__.py'):
      candidate = pathlib.Path(stem + end)
      if candidate in known:
        return known[candidate]
  return None


def _shortened(label: str, package: str) -> str:
  """Returns the label as Bazel's formatter would have it inside `package`."""
  folder, name = label.removeprefix('//').split(':')
  if folder == package:
    return f':{name}'
  if folder.rpartition('/')[2] == name:
    return f'//{folder}'
  return label


def _rule(path: pathlib.Path, label: str, depends_on: set[str]) -> str:
  name = label.partition(':')[2]
  kind = 'py_library'
  if name.endswith('_test'):
    kind = 'py_test'
  elif name == '__main__':
    kind = 'py_binary'
  lines = [f'{kind}(', f'    name = "{name}",']
  if kind == 'py_library' and path.parts[0] == 'tests':
    lines.append('    testonly = True,')
  lines.append(f'    srcs = ["{path.name}"],')
  package = path.parent.as_posix()
  # Bazel's formatter lists the own package first.
  labels = sorted(
      (_shortened(other, package) for other in depends_on),
      key=lambda text: (not text.startswith(':'), text.replace(':', '!')),
  )
  if len(labels) == 1:
    lines.append(f'    deps = ["{labels[0]}"],')
  elif labels:
    lines.append('    deps = [')
    lines.extend(f'        "{other}",' for other in labels)
    lines.append('    ],')
  return '\n'.join([*lines, ')'])


def contents(root: pathlib.Path) -> dict[pathlib.Path, str]:
  """Returns BUILD path -> text, paths relative to `root`."""
  known = targets(root)
  graph = dependencies(root, known)
  rules = {}
  for path, label in known.items():
    rules.setdefault(path.parent, []).append(
        (label, _rule(path, label, graph[label]))
    )
  files = {}
  for folder, pairs in rules.items():
    kinds = sorted({text.partition('(')[0] for _, text in pairs})
    loads = ', '.join(f'"{kind}"' for kind in kinds)
    head = [
        _HEADER,
        f'load("@rules_python//python:defs.bzl", {loads})\n',
        'package(default_visibility = ["//visibility:public"])\n',
        'licenses(["notice"])\n',
    ]
    body = [text + '\n' for _, text in sorted(pairs)]
    files[folder / 'BUILD'] = '\n'.join(head + body)
  return files


def out_of_date(root: pathlib.Path) -> list[pathlib.Path]:
  """Returns the BUILD files that are missing, wrong or left over."""
  wanted = contents(root)
  present = {
      path.relative_to(root)
      for folder in FOLDERS
      for path in (root / folder).rglob('BUILD')
  }
  return sorted(
      path
      for path in wanted.keys() | present
      if path not in wanted
      or path not in present
      or (root / path).read_text() != wanted[path]
  )


def main() -> int:
  parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
  parser.add_argument(
      '--check', action='store_true', help='change nothing; status 1 if stale'
  )
  args = parser.parse_args()
  root = pathlib.Path(__file__).resolve().parents[1]
  stale = out_of_date(root)
  wanted = contents(root)
  for path in stale:
    print(path)
    if args.check:
      continue
    if path in wanted:
      (root / path).write_text(wanted[path])
    else:
      (root / path).unlink()
  return 1 if args.check and stale else 0


if __name__ == '__main__':
  sys.exit(main())
