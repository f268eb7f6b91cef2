# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The figures of the pages are those that the command line prints.

Each is quoted with what stands around it on the page. A figure in braces is that of
the first line that the command prints, rounded as on the page; one in brackets is
"without amplification". Measured tables are in `docs_tables_test.py`.
"""

import pathlib
import re
import shlex

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest

from benchmarks import integer_sums
from tests.cli import command
from tff_dp.cli import main

pytestmark = pytest.mark.once

_DOCS = pathlib.Path(__file__).resolve().parent.parent / 'docs'
_SETTINGS = 'shuffled-check-in --population 60000 --check-in-rate 0.1'
_CHECK_IN = f'account {_SETTINGS} --rounds 6800 --local-epsilon 2'
_MANY = (
    'account shuffled-check-in --population 10000000 --check-in-rate 1e-4'
    ' --rounds 2000 --delta 1e-7'
)
_SLOTS = '--slots 2000 --delta 1e-6'
_AVERAGED = (
    f'account random-check-in --protocol averaged --population 1000000 {_SLOTS}'
)
_THEOREM = f'account random-check-in {_SLOTS} --bound rci'
_ONE_PASS = (
    'calibrate isrl --records 1238 --rounds 35 --batch-size 35 --sampling'
    ' one-pass --epsilon 1 --delta 6.5e-7'
)
_CHECK_INS = (
    ('prints epsilon {1.678} for *any* 2-LDP randomizer, [10800]', f'{_CHECK_IN} --delta 1.6666e-5'),
    (
        '{1.719} instead of 1.678',
        f'{_CHECK_IN} --delta 1.6666e-5 --published-proofs',
    ),
    (
        '| {1.225} | strong_clones | [10800] |',
        f'{_CHECK_IN} --delta 1.6666e-5 --randomizer sphere',
    ),
    (
        'any randomizer | {0.06224} | clones | [16000] |',
        f'{_MANY} --local-epsilon 8',
    ),
    (
        '3.163e-11` | {0.06224} | clones | [16030] |',
        f'{_MANY} --local-epsilon 8 --local-delta 3.163e-11',
    ),
    (
        'noise-multiplier 4.968` | {2.396} | clones | [inf] |',
        f'account {_SETTINGS} --rounds 5540 --noise-multiplier 4.968'
        ' --delta 1.6666e-5',
    ),
    (
        'noise-multiplier 1.708` | {0.02959} | clones | [inf] |',
        f'{_MANY} --noise-multiplier 1.708',
    ),
    *(
        (
            f'\n| {multiplier} | {{{epsilon}}} | [{alone}] |',
            f'account random-allocation {_SLOTS} --noise-multiplier'
            f' {multiplier}',
        )
        for multiplier, epsilon, alone in (
            ('0.5', '3.435', '11.00'),
            ('0.6', '1.496', '8.841'),
            ('0.8', '0.2578', '6.313'),
            ('1', '0.1130', '4.887'),
        )
    ),
    *(
        (
            f'\n| {e0} | {{{epsilon}}} |',
            f'account random-check-in {_SLOTS} --local-epsilon {e0}',
        )
        for e0, epsilon in (
            ('0.25', '0.02380'),
            ('0.5', '0.06626'),
            ('1', '0.2453'),
            ('2', '1.705'),
        )
    ),
    *(
        (f'| {{{epsilon}}} | {averaged} |\n', f'{_THEOREM} --local-epsilon {e0}')
        for e0, epsilon, averaged in (
            ('0.25', '0.03786', '0.06531'),
            ('0.5', '0.09809', '0.2468'),
            ('1', '0.3350', 'no amplification'),
        )
    ),
    ('| {0.06531} |\n', f'{_AVERAGED} --local-epsilon 0.25'),
    ('| {0.2468} |\n', f'{_AVERAGED} --local-epsilon 0.5'),
)
_ISRL_PROOFS = (('\nis {8.624785} clip norms', _ONE_PASS),)
_TASKS = (
    (
        'the same noise, {3.984} and 4.028 clip norms',
        'calibrate random-allocation --slots 60 --rounds 1200 --epsilon 0.5'
        ' --delta 1.6666e-5',
    ),
)
_TUTORIAL = (
    (
        'It prints {4.712}: the',
        'calibrate dp-ftrl --mechanism blt --rounds 124 --min-index-gap 62'
        ' --epsilon 2 --delta 1e-5',
    ),
)
_BY_DEFAULT = (
    'calibrate isrl --records {} --batch-size 1000 --rounds 500 --sampling {}'
    ' --epsilon 1'
)
_ISRL = (
    ('| {1.146976} | 2.251855 |', _BY_DEFAULT.format(300_000, 'poisson')),
    ('| {0.9648202} | 1.927140 |', _BY_DEFAULT.format(1_000_000, 'poisson')),
    ('| 0.9648202 | {1.927140} |', _BY_DEFAULT.format(1_000_000, 'fixed')),
)
_README = (
    (
        'begins with `epsilon {17.67} at delta',
        'account dp-ftrl --mechanism honaker --rounds 1600'
        ' --max-participations 1 --noise-multiplier 1.13 --delta 1e-6',
    ),
)
_DRAW_AND_DISCARD = (
    (
        '\n{111.5} at delta 1e-6',
        'account draw-and-discard --parameters 33 --epsilon-per-coordinate 3.47'
        ' --participations 1 --instances 20 --delta 1e-6',
    ),
)
_SAMPLING = (
    (
        'epsilon {2.749} at delta 1e-05',
        'account dp-fedavg --population 3400 --clients-per-round 100'
        ' --rounds 200 --noise-multiplier 1 --delta 1e-5',
    ),
    (
        'prints {1.302}',
        'account dp-sgd --records 60000 --batch-size 250 --epochs 20'
        ' --noise-multiplier 1.1 --delta 1e-5',
    ),
)
_FIGURES = tuple(
    (page, *figure)
    for page, figures in (
        ('../README.md', _README),
        ('check_ins.md', _CHECK_INS),
        ('draw_and_discard.md', _DRAW_AND_DISCARD),
        ('isrl.md', _ISRL),
        ('proofs_silos.md', _ISRL_PROOFS),
        ('sampling.md', _SAMPLING),
        ('tasks.md', _TASKS),
        ('tutorial.md', _TUTORIAL),
    )
    for figure in figures
)


class DocsFiguresTest(parameterized.TestCase):

  @parameterized.parameters(*_FIGURES)
  def test_figure(self, page, quoted, argv):
    text = (_DOCS / page).read_text(encoding='utf-8')
    self.assertIn(re.sub(r'[][{}]', '', quoted), text)
    code, out, err = command.run(main.main, *argv.split())
    self.assertEqual(code, 0, err)
    first = re.search(
        r'(?:^|[ =])([\d.]+)( at delta| is within| within|$)',
        out.partition('\n')[0],
    )
    alone = re.search(r'\n  without amplification: (\S+)', out)
    for printed, pattern in ((first, r'\{(.*)\}'), (alone, r'\[(.*)\]')):
      for figure in re.findall(pattern, quoted):
        decimals = len(figure.partition('.')[2])
        self.assertEqual(f'{float(printed[1]):.{decimals}f}', figure)

  @parameterized.parameters(
      ('draw_and_discard.md', 'account draw-and-discard'),
      ('which_system.md', 'advise'),
  )
  # `cli/goldens_test.py` has whole outputs of `advise`.
  @pytest.mark.slow(cases=['1'])
  def test_quoted_output(self, page, command_name):
    """A block of a command and its first lines, as they are printed."""
    text = (_DOCS / page).read_text('utf-8').replace('\\\n', '')
    blocks = re.findall(
        rf'```(?:bash)?\n(?:\$ )?tff-dp ({command_name} .*)\n(?:```\n```\n)?'
        r'((?:.+\n|\n)+?)```', text)
    self.assertNotEmpty(blocks)
    for argv, quoted in blocks:
      code, out, err = command.run(main.main, *shlex.split(argv))
      self.assertEqual(code, 0, err)
      self.assertStartsWith(out, quoted)

  def _compared(self, text, *further) -> dict[str, list[float]]:
    """Returns the numbers of each row that the page's `compare` prints."""
    argv = re.search(r'tff-dp (compare (?:.*\\\n)*.*)', text)[1]
    code, out, err = command.run(
        main.main, *argv.replace('\\\n', '').split(), *further
    )
    self.assertEqual(code, 0, err)
    rows = re.findall(r'^\W+(\w[\w, -]*?\w)  +(\d[\d. %<=]*) #', out, re.M)
    return {n: [float(x) for x in re.findall(r'[\d.]+', c)] for n, c in rows}

  def test_errors_at_equal_privacy(self):
    text = (_DOCS / 'dp_ftrl.md').read_text('utf-8')
    printed = self._compared(text)
    table = re.findall(r'^\| ([\w, -]+) \| (\d[\d. |%]+) \|$', text, re.M)
    self.assertCountEqual(printed, [name for name, _ in table])
    for name, cells in table:
      # The last digits of an optimum differ from one processor to another.
      np.testing.assert_allclose(
          [float(x) for x in re.findall(r'[\d.]+', cells)], printed[name],
          rtol=1e-3, err_msg=name,
      )

  @parameterized.parameters(
      (8, ['squares of 1.96 for cyclic', 'and 2.14 for BLT\n'],
       ('cyclic', 'blt')),
      (2, ['are 4.46 and 7.30.'], ('cyclic', 'blt')),
      (0.5, ['are 8.50 and 26.38, and\nrandom allocation has 22.73'],
       ('cyclic', 'blt', 'random')),
  )
  @pytest.mark.slow(cases=['0', '2'])
  def test_errors_of_cyclic_allocation(self, epsilon, quoted, rows):
    text = (_DOCS / 'check_ins.md').read_text('utf-8')
    for each in quoted:
      self.assertIn(each, text)
    printed = self._compared(text, '--epsilon', epsilon)
    for row, figure in zip(rows, re.findall(r'\d+\.\d\d', ' '.join(quoted))):
      (rmse,) = [v[1] for n, v in printed.items() if n.startswith(row)]
      self.assertAlmostEqual(rmse, float(figure), delta=0.011)

  @parameterized.parameters(16, 64)
  @pytest.mark.slow(cases=['1'])
  def test_noises_of_integer_sums(self, grid):
    _, out, _ = command.run(integer_sums.main, '--grids', grid)
    lines = out.splitlines()
    self.assertLen(lines, 6)
    table = (_DOCS / 'isrl.md').read_text('utf-8').splitlines()
    self.assertContainsSubset(lines, table)


if __name__ == '__main__':
  absltest.main()
