# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""BUILD files have one target per module, in step with the files."""

import importlib.util
import pathlib

from absl.testing import absltest

_ROOT = pathlib.Path(__file__).parents[1]
# `tools` is no package: it is not imported by anything that is shipped.
_SPEC = importlib.util.spec_from_file_location(
    'build_files', _ROOT / 'tools' / 'build_files.py'
)
build_files = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(build_files)


class BuildFilesTest(absltest.TestCase):

  def test_nothing_is_out_of_date(self):
    stale = build_files.out_of_date(_ROOT)
    self.assertEmpty(stale, 'run `make build-files`')

  def test_every_module_has_exactly_one_target(self):
    labels = list(build_files.targets(_ROOT).values())
    self.assertNotEmpty(labels)
    self.assertLen(set(labels), len(labels))

  def test_dependencies_have_no_cycle(self):
    known = build_files.targets(_ROOT)
    graph = build_files.dependencies(_ROOT, known)
    done = set()

    def visit(label, path):
      self.assertNotIn(label, path, ' -> '.join([*path, label]))
      if label in done:
        return
      for other in sorted(graph[label]):
        visit(other, [*path, label])
      done.add(label)

    for label in sorted(graph):
      visit(label, [])

  def test_small_tree(self):
    root = pathlib.Path(self.create_tempdir().full_path)
    for name, text in {
        'tff_dp/__init__.py': 'from tff_dp.inner import one\n',
        'tff_dp/inner/__init__.py': '',
        'tff_dp/inner/one.py': 'import os\n',
        'tff_dp/inner/two.py': (
            'from tff_dp.inner.one import name\n'
            'def later():\n  import tff_dp\n'
        ),
        'tests/two_test.py': 'from tff_dp.inner import two\n',
    }.items():
      path = root / name
      path.parent.mkdir(parents=True, exist_ok=True)
      path.write_text(text)
    files = build_files.contents(root)
    self.assertCountEqual(
        map(str, files), ['tff_dp/BUILD', 'tff_dp/inner/BUILD', 'tests/BUILD']
    )
    self.assertEndsWith(
        files[pathlib.Path('tff_dp/inner/BUILD')],
        'py_library(\n    name = "one",\n    srcs = ["one.py"],\n)\n\n'
        'py_library(\n    name = "two",\n    srcs = ["two.py"],\n'
        '    deps = [\n        ":one",\n        "//tff_dp",\n    ],\n)\n',
    )
    self.assertEndsWith(
        files[pathlib.Path('tests/BUILD')],
        'py_test(\n    name = "two_test",\n    srcs = ["two_test.py"],\n'
        '    deps = ["//tff_dp/inner:two"],\n)\n',
    )
    (root / 'tests' / 'BUILD').write_text('stale')
    self.assertIn(pathlib.Path('tests/BUILD'), build_files.out_of_date(root))


if __name__ == '__main__':
  absltest.main()
