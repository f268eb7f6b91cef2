# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the import shim, in child processes with packages of our own making.

The stand-ins for TFF and its friends are a few lines each, so that every Python
runs the same tests; on a current stack the real TFF comes on top.
"""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import textwrap
import unittest

from absl.testing import absltest
from absl.testing import parameterized

from tff_dp import _compat
from tff_dp import _shim

_ROOT = pathlib.Path(__file__).parents[1]
_FRONTEND = 'tensorflow_federated.python.core.environments.jax_frontend'
# Exactly these, and what is below them.
_LISTED = (
    'jax',
    _FRONTEND,
    'tensorflow_estimator',
    'tensorflow_privacy.v1',
    'tensorflow_privacy.privacy.estimators',
    'tensorflow_model_optimization',
)
# Imports like TFF's own, from a package that is not there.
_IMPORTS_JAX = """
    import abc
    import jax
    class Base(abc.ABC): pass
    class Struct(jax.ShapeDtypeStruct, Base):
      def __init__(self): self.seen = True
    @jax.tree_util.register_pytree_node_class
    class Mine: pass
    jax.tree_util.register_pytree_node(Mine, id, id)
    """
_TFF = {'tensorflow_federated/__init__.py': _IMPORTS_JAX}
_JAX = {
    'jax/__init__.py': """
        from jax import tree_util
        class ShapeDtypeStruct: pass
        """,
    'jax/tree_util.py': """
        def register_pytree_node_class(cls): return cls
        def register_pytree_node(*args): pass
        """,
}
_INSTALL = """
import sys
from tff_dp import _shim
_shim.install()
import tensorflow_federated as tff
"""


class ShimTest(parameterized.TestCase):

  def _run(self, files, code, install=_INSTALL):
    """Runs code that prints JSON where only `files` can be imported."""
    folder = pathlib.Path(self.create_tempdir().full_path)
    for name, text in files.items():
      (folder / name).parent.mkdir(parents=True, exist_ok=True)
      (folder / name).write_text(textwrap.dedent(text))
    result = subprocess.run(
        # Without site-packages, where real ones may be.
        [sys.executable, '-S', '-c', install + textwrap.dedent(code)],
        capture_output=True,
        text=True,
        env={**os.environ, 'PYTHONPATH': f'{folder}:{_ROOT}'},
        check=False,
    )
    self.assertEqual(result.returncode, 0, result.stderr)
    return json.loads(result.stdout)

  def test_entries_are_the_listed_names_with_versions(self):
    self.assertEqual(tuple(entry.name for entry in _shim.ENTRIES), _LISTED)
    for entry in _shim.ENTRIES:
      self.assertRegex(entry.checked, r'\d+\.\d+\.\d+')

  @parameterized.parameters(*_LISTED)
  def test_each_placeholder_is_served_and_loud(self, name):
    # The parents exist; the module itself does not.
    files = {'tensorflow_federated/__init__.py': f'import {name}.below as it'}
    files['tensorflow_privacy/__init__.py'] = ''
    for parent in (
        'tensorflow_privacy/privacy',
        'tensorflow_federated/python',
        'tensorflow_federated/python/core',
        'tensorflow_federated/python/core/environments',
    ):
      files[f'{parent}/__init__.py'] = ''
    served, message = self._run(
        files,
        """
        import json
        try:
          tff.it.Something
        except NotImplementedError as error:
          print(json.dumps([_shim.served(), str(error)]))
        """,
    )
    self.assertEqual(served, [name, f'{name}.below'])
    self.assertIn(f'{name}.below.Something was used', message)
    self.assertIn('column A', message)
    entry = next(e for e in _shim.ENTRIES if e.name == name)
    self.assertStartsWith(message, entry.feature)

  @parameterized.parameters(
      'tff.jax.jit',
      'tff.jax.tree_util',
      'tff.jax.ShapeDtypeStruct',
      'tff.held()',
      'tff.held.name',
      'tff.held.name()',
      'tff.Struct()',
      'tff.Struct.missing',
  )
  def test_every_use_is_loud(self, use):
    files = {
        'tensorflow_federated/__init__.py': (
            textwrap.dedent(_IMPORTS_JAX) + 'held = jax.numpy\n'
        )
    }
    message = self._run(
        files,
        f"""
        import json
        try:
          {use}
        except _shim.UnavailableFeatureError as error:
          print(json.dumps(str(error)))
        """,
    )
    self.assertStartsWith(message, 'tff.jax, computations written in JAX, is')

  def test_classes_that_only_pass_through_stay_usable(self):
    self.assertTrue(
        self._run(
            _TFF, 'print("true" if isinstance(tff.Mine(), tff.Mine) else "")'
        )
    )

  def test_nothing_is_replaced_where_the_real_one_exists(self):
    served, loader = self._run(
        {**_TFF, **_JAX},
        """
        import json, jax
        print(json.dumps([_shim.served(), type(jax.__loader__).__name__]))
        """,
    )
    self.assertEqual(served, [])
    self.assertEqual(loader, 'SourceFileLoader')

  def test_real_one_that_does_not_load_is_replaced(self):
    broken = {**_JAX, 'jax/__init__.py': 'import numpy_of_old'}
    self.assertEqual(
        self._run(
            {**_TFF, **broken}, 'import json; print(json.dumps(_shim.served()))'
        ),
        ['jax'],
    )

  def test_real_one_below_a_missing_need_is_replaced(self):
    # tensorflow_privacy.v1 is there, but tensorflow_estimator is not.
    files = {
        'tensorflow_federated/__init__.py': 'import tensorflow_privacy.v1',
        'tensorflow_privacy/__init__.py': '',
        'tensorflow_privacy/v1/__init__.py': 'raise AssertionError("loaded")',
    }
    self.assertEqual(
        self._run(files, 'import json; print(json.dumps(_shim.served()))'),
        ['tensorflow_estimator', 'tensorflow_privacy.v1'],
    )

  @parameterized.parameters(
      # As jax 0.4.13, 0.7.2 and 0.12.0 have it.
      ('class XlaComputation: pass', []),
      ('', [_FRONTEND]),
      (None, [_FRONTEND]),
  )
  def test_jax_that_tff_cannot_use_stays_but_its_frontend_goes(
      self, xla_client, served
  ):
    files = {
        **_JAX,
        'jax/lib/__init__.py': '',
        'tensorflow_federated/__init__.py': f'from {_FRONTEND} import it',
        'tensorflow_federated/python/__init__.py': '',
        'tensorflow_federated/python/core/__init__.py': '',
        'tensorflow_federated/python/core/environments/__init__.py': '',
        f'{_FRONTEND.replace(".", "/")}/__init__.py': 'it = 1',
    }
    if xla_client is not None:
      files['jax/lib/__init__.py'] = 'from jax.lib import xla_client'
      files['jax/lib/xla_client.py'] = xla_client
    found = self._run(
        files,
        """
        import json, jax
        print(json.dumps([_shim.served(), jax.__name__, 'jax' in sys.modules]))
        """,
    )
    self.assertEqual(found, [served, 'jax', True])

  def test_only_listed_names_are_served(self):
    for name in ('jaxlib', 'torch', 'jaxtyping', 'tensorflow_estimators'):
      files = {
          'tensorflow_federated/__init__.py': (
              f'try: import {name}\n'
              'except ImportError as error: failure = str(error)'
          )
      }
      failure, served = self._run(
          files,
          'import json; print(json.dumps([tff.failure, _shim.served()]))',
      )
      self.assertEqual(failure, f"No module named '{name}'")
      self.assertEqual(served, [])

  def test_nobody_but_tff_sees_a_placeholder(self):
    seen = self._run(
        _TFF,
        """
        import importlib.util, json
        seen = ['jax' in sys.modules, bool(importlib.util.find_spec('jax'))]
        try:
          import jax
        except ModuleNotFoundError as error:
          seen.append(str(error))
        print(json.dumps(seen))
        """,
    )
    self.assertEqual(seen, [False, False, "No module named 'jax'"])

  def test_import_that_fails_leaves_no_placeholder_behind(self):
    self.assertEqual(
        self._run(
            {'tensorflow_federated/__init__.py': 'import jax\nraise OSError'},
            """
            import json
            try:
              import tensorflow_federated
            except OSError:
              print(json.dumps(['jax' in sys.modules]))
            """,
            install=_INSTALL.replace('import tensorflow_federated as tff', ''),
        ),
        [False],
    )

  def test_installed_once_and_not_in_column_a(self):
    count = self._run(
        {},
        """
        import tff_dp
        from tff_dp import _compat
        _compat.prepare_imports()
        print(sum(type(f).__name__ == '_Finder' for f in sys.meta_path))
        """,
        install='import sys',
    )
    self.assertEqual(count, int(_compat.COLUMN.needs_shim))

  def test_keras_is_the_one_that_tff_wants(self):
    code = 'import json, os; print(json.dumps(os.environ.get("{}")))'.format(
        'TF_USE_LEGACY_KERAS'
    )
    with absltest.mock.patch.dict(os.environ):
      os.environ.pop('TF_USE_LEGACY_KERAS', None)
      chosen = self._run({}, code, install='import tff_dp\n')
      self.assertEqual(
          chosen, '1' if _compat.COLUMN.needs_shim else None
      )
      os.environ['TF_USE_LEGACY_KERAS'] = '0'
      self.assertEqual(self._run({}, code, install='import tff_dp\n'), '0')


@unittest.skipUnless(
    _compat.COLUMN.needs_shim, 'column A has the real packages'
)
class RealTffTest(absltest.TestCase):
  """What the real TFF does on the shim."""

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.tff = _compat.require_tff()

  def test_only_listed_names_were_served(self):
    for name in _shim.served():
      self.assertTrue(
          any(name == root or name.startswith(f'{root}.') for root in _LISTED)
      )
    self.assertNotEmpty(_shim.served())

  def test_tf_keras(self):
    import tensorflow as tf  # pylint: disable=g-import-not-at-top

    self.assertStartsWith(tf.keras.Model.__module__, 'tf_keras.')

  def test_features_without_their_package_are_loud(self):
    import numpy as np  # pylint: disable=g-import-not-at-top

    encoded_sum = self.tff.aggregators.EncodedSumFactory
    compressed = encoded_sum.quantize_above_threshold(quantization_bits=8)
    for feature, use in (
        ('tff.jax', lambda: self.tff.jax.computation(lambda x: x, np.int32)),
        (
            'tff.learning.compression_aggregator',
            lambda: compressed.create(
                self.tff.TensorType(np.float32, (100_000,))
            ),
        ),
    ):
      with self.assertRaisesRegex(_shim.UnavailableFeatureError, feature):
        use()

  def test_matplotlib_finds_no_placeholder_of_jax(self):
    # It asks sys.modules['jax'] for its arrays.
    self.assertEqual(
        'jax' in sys.modules, importlib.util.find_spec('jax') is not None
    )


if __name__ == '__main__':
  absltest.main()
