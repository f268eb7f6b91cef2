# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Draws the pictures of docs/tutorial.md: a run in a terminal, and its report.

  .venv-docs/bin/python tools/draw_tutorial.py

The Python of the page's sections 1 to 3 trains in a terminal, which takes minutes.
Then `tff-dp account` recomputes epsilon, and Chromium opens the report. A new run
draws other noise, so copy its accuracy from the picture into the page.
"""

import io
import os
import pathlib
import pty
import re
import shutil
import subprocess
import sys
import tempfile
import termios

from PIL import Image
from rich import console as console_lib
from rich import text as text_lib

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_DOCS = _ROOT / 'docs'
_COLUMNS = 90
# Pixels of the report's top.
_WIDTH, _HEIGHT = 1000, 885
_COLOURS = 256
# Without fonts from elsewhere.
_SVG = re.sub(r'@font-face \{\{.*?\}\}', '', console_lib.CONSOLE_SVG_FORMAT, flags=re.S)


def in_terminal(words: list[str], folder: pathlib.Path) -> str:
  """Returns what a command shows in a terminal, with its codes.

  Args:
    words: Command and arguments.
    folder: Folder in which it runs.

  Raises:
    CalledProcessError: If the command fails.
  """
  ours, its = pty.openpty()
  termios.tcsetwinsize(its, (40, _COLUMNS))
  process = subprocess.Popen(
      words,
      cwd=folder,
      stdin=its,
      stdout=its,
      stderr=its,
      env={**os.environ, 'PYTHONPATH': str(_ROOT), 'TERM': 'xterm-256color'},
  )
  os.close(its)
  content = b''
  try:
    while part := os.read(ours, 65536):
      content += part
  except OSError:  # So Linux says that the command has closed its side.
    pass
  os.close(ours)
  if process.wait():
    raise subprocess.CalledProcessError(process.returncode, words, content)
  return content.decode()


def draw_terminal(shown: str, path: pathlib.Path) -> None:
  """Writes the SVG of what a terminal shows in the end."""
  # A line that was written over shows its last state.
  text = text_lib.Text.from_ansi(shown.replace('\r\n', '\n').replace('\x1b[K', ''))
  console = console_lib.Console(
      file=io.StringIO(), record=True, width=_COLUMNS, force_terminal=True
  )
  console.print(text, highlight=False)
  console.save_svg(
      str(path),
      title='a first private model',
      code_format=_SVG,
      unique_id='terminal',
  )


def draw_top(page: pathlib.Path, path: pathlib.Path) -> None:
  """Writes the PNG of the upper part of a page in Chromium."""
  browser = shutil.which('chromium') or shutil.which('google-chrome')
  with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
    shot = pathlib.Path(folder) / 'shot.png'
    subprocess.run(
        [
            browser, '--headless=new', '--no-sandbox', '--disable-gpu',
            '--hide-scrollbars', f'--user-data-dir={folder}/profile',
            f'--window-size={_WIDTH},{_HEIGHT}', f'--screenshot={shot}',
            page.as_uri(),
        ],
        check=True,
        capture_output=True,
    )
    picture = Image.open(shot).convert('RGB')
    picture.quantize(_COLOURS).save(path, optimize=True)


def main() -> None:
  blocks = re.findall(
      r'```python\n(.*?)```', (_DOCS / 'tutorial.md').read_text('utf-8'), re.S
  )
  with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    (folder / 'tutorial.py').write_text('\n'.join(blocks[:3]), 'utf-8')
    account = ['account', '--events', 'runs/tutorial/release/events.json']
    shown = ''
    for command, words in (
        ('.venv/bin/python tutorial.py', [sys.executable, 'tutorial.py']),
        (
            ' '.join(['.venv/bin/tff-dp', *account]),
            [sys.executable, '-m', 'tff_dp', *account],
        ),
    ):
      shown += f'\x1b[1m$ {command}\x1b[0m\n{in_terminal(words, folder)}\n'
    draw_terminal(shown.rstrip(), _DOCS / 'tutorial_terminal.svg')
    report = folder / 'runs/tutorial/release/report.html'
    draw_top(report, _DOCS / 'tutorial_report.png')


if __name__ == '__main__':
  main()
