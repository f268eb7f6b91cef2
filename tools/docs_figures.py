# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Writes the measured tables of docs/*.md from docs/figures/*.json.

  python tools/docs_figures.py                  # write the pages again
  python tools/docs_figures.py --measured NAME  # its command has just been run
  python tools/docs_figures.py --as-of NAME     # its code changed; not run again
  python tools/docs_figures.py --draw           # also the pictures of tables

A page has a table NAME between `<!-- figure NAME -->` and `<!-- /figure -->`.
The JSON has the command, what ran it, and the cells. `sha256` is the hash of the
files under `code` when the command was run, or null: then the table is marked
"as of" its revision. tests/docs_tables_test.py compares hashes and pages.
"""

import argparse
import datetime
import hashlib
import json
import pathlib
import re
import subprocess
import sys
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[1]
# Tables that have a picture of the same name.
_DRAWN = ('digits_sweep', 'digits_check_ins')
BLOCK = re.compile(r'(<!-- figure (\w+) -->\n).*?(<!-- /figure -->)', re.S)


def load(root: pathlib.Path = ROOT) -> dict[str, dict[str, Any]]:
  """Returns the content of every JSON file, by name."""
  files = sorted((root / 'docs' / 'figures').glob('*.json'))
  return {path.stem: json.loads(path.read_text('utf-8')) for path in files}


def code_sha256(figure: dict[str, Any], root: pathlib.Path = ROOT) -> str:
  """Returns the hash of the Python files under the paths of `code`."""
  digest = hashlib.sha256()
  for name in figure['code']:
    path = root / name
    for file in sorted(path.rglob('*.py')) if path.is_dir() else [path]:
      digest.update(f'{file.relative_to(root)}\n'.encode() + file.read_bytes())
  return digest.hexdigest()


def to_markdown(figure: dict[str, Any]) -> str:
  """Returns command, table and origin, as they stand on the page."""
  header, *rows = figure['table']
  lines = [header, ['---'] * len(header), *rows]
  table = '\n'.join('| ' + ' | '.join(line) + ' |' for line in lines)
  command = '\n'.join(f'    {line}' for line in figure['command'])
  as_of = '' if figure['sha256'] else 'as of '
  return (
      f'\n{command}\n\n{table}\n\n*{figure["spread"]}. {figure["date"]}, {as_of}'
      f'revision {figure["revision"]}, {figure["machine"]}.*\n\n'
  )


def written(page: str, figures: dict[str, dict[str, Any]]) -> str:
  """Returns the text of a page with its tables as the JSON files have them."""
  return BLOCK.sub(
      lambda block: block[1] + to_markdown(figures[block[2]]) + block[3], page
  )


def draw(figures: dict[str, dict[str, Any]]) -> None:
  """Draws the pictures of sweeps from their tables."""
  sys.path.insert(0, str(ROOT))
  # pylint: disable=g-import-not-at-top
  from tasks.digits import public_body
  from tasks.digits import sweep
  from tasks.silos import heart
  from tasks.silos import silo_report

  # pylint: enable=g-import-not-at-top
  for name in _DRAWN:
    points = sweep.points_of(figures[name]['table'])
    sweep.plot(points, ROOT / 'docs' / f'{name}.png')
  public_body.plot_table(
      figures['public_body']['table'], ROOT / 'docs' / 'public_body.png'
  )
  silo_report.plot_table(
      figures['heart']['table'],
      ROOT / 'docs' / 'silo_heart.png',
      title=heart.TITLE,
      error_name='test error',
  )


def main() -> None:
  """Changes JSON files as the flags say, then writes all pages."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--measured', nargs='+', default=[], metavar='NAME')
  parser.add_argument('--as-of', nargs='+', default=[], metavar='NAME')
  parser.add_argument('--draw', action='store_true')
  given = parser.parse_args()
  figures = load()
  for name in given.measured:
    revision = subprocess.check_output(
        ['git', 'rev-parse', '--short=8', 'HEAD'], cwd=ROOT, text=True
    )
    figures[name] |= {
        'date': datetime.date.today().isoformat(),
        'revision': revision.strip(),
        'sha256': code_sha256(figures[name]),
    }
  for name in given.as_of:
    figures[name]['sha256'] = None
  for name in {*given.measured, *given.as_of}:
    path = ROOT / 'docs' / 'figures' / f'{name}.json'
    text = json.dumps(figures[name], indent=1, ensure_ascii=False)
    path.write_text(text + '\n', 'utf-8')
  for path in ROOT.glob('docs/*.md'):
    path.write_text(written(path.read_text('utf-8'), figures), 'utf-8')
  if given.draw:
    draw(figures)


if __name__ == '__main__':
  main()
