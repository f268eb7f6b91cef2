# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The figures of the pages are those that the command line prints.

Each is quoted as it is printed, and has to stand on the page in what is quoted
around it. Commands of more than a second or two are left to their page.
"""

import pathlib

from absl.testing import absltest
from absl.testing import parameterized

from tests.cli import command
from tff_dp.cli import main

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
_ONE_PASS = (
    'calibrate isrl --records 1238 --rounds 35 --batch-size 35 --sampling'
    ' one-pass --epsilon 1 --delta 6.5e-7'
)
_CHECK_INS = (
    # What the page says, with the first line that the command prints in braces.
    ('prints epsilon {1.678} for *any*', f'{_CHECK_IN} --delta 1.6666e-5'),
    (
        '{1.719} instead of 1.678',
        f'{_CHECK_IN} --delta 1.6666e-5 --published-proofs',
    ),
    (
        '| {1.225} | strong_clones |',
        f'{_CHECK_IN} --delta 1.6666e-5 --randomizer sphere',
    ),
    ('1e-6: {1.734} and', f'{_CHECK_IN} --delta 1e-5'),
    ('and {1.965} for any randomizer', f'{_CHECK_IN} --delta 1e-6'),
    (
        'randomizer, {1.267} and',
        f'{_CHECK_IN} --delta 1e-5 --randomizer sphere',
    ),
    ('{1.444} for the sphere', f'{_CHECK_IN} --delta 1e-6 --randomizer sphere'),
    ('any randomizer | {0.06224} |', f'{_MANY} --local-epsilon 8'),
    (
        '3.163e-11` | {0.06224} |',
        f'{_MANY} --local-epsilon 8 --local-delta 3.163e-11',
    ),
    *(
        (
            f'\n| {multiplier} | {{{epsilon}}} |',
            f'account random-allocation {_SLOTS} --noise-multiplier'
            f' {multiplier}',
        )
        for multiplier, epsilon in (
            ('0.5', '3.435'),
            ('0.6', '1.496'),
            ('0.8', '0.2578'),
            ('1', '0.1130'),
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
    ('| {0.06531} |\n', f'{_AVERAGED} --local-epsilon 0.25'),
    ('| {0.2468} |\n', f'{_AVERAGED} --local-epsilon 0.5'),
)
_ISRL_PROOFS = (('only: {8.624785} on', _ONE_PASS),)
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
        '\nepsilon {114.6} at delta 0\n',
        'account draw-and-discard --parameters 33 --epsilon-per-coordinate 3.47'
        ' --participations 1 --instances 20',
    ),
    (
        '\nepsilon {4.901} at delta 1e-06\n',
        'account draw-and-discard --parameters 33 --epsilon 2 --delta 1e-6'
        ' --mechanism gaussian --clip l2 --participations 5 --instances 20',
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
    )
    for figure in figures
)


class DocsFiguresTest(parameterized.TestCase):

  @parameterized.parameters(*_FIGURES)
  def test_figure(self, page, quoted, argv):
    text = (_DOCS / page).read_text(encoding='utf-8')
    self.assertIn(quoted.replace('{', '').replace('}', ''), text)
    code, out, err = command.run(main.main, *argv.split())
    self.assertEqual(code, 0, err)
    figure = quoted[quoted.index('{') + 1 : quoted.index('}')]
    first = out.splitlines()[0]
    self.assertRegex(first, rf'[ =]{figure}( at delta| is within|$)')


if __name__ == '__main__':
  absltest.main()
