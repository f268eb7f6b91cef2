# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Configures Sphinx, which builds the site: `make docs`.

The source is the whole repository, so a link between two pages works in the
repository and in the site.
"""

import inspect
import os
import pkgutil
import re

import tff_dp

project = 'tff_dp'
author = 'The tff_dp Authors'
copyright = f'2026, {author}'  # pylint: disable=redefined-builtin
release = tff_dp.__version__
extensions = [
    'myst_nb',
    'sphinx-mathjax-offline',
    'sphinx.ext.autodoc',
    'sphinx.ext.mathjax',
    'sphinx.ext.napoleon',
    'sphinx_copybutton',
]
root_doc = 'docs/index'
include_patterns = ['*.md', 'docs/**.md', 'colab/*.ipynb']
exclude_patterns = ['.*', 'build', 'benchmarks', 'tasks', 'tests', 'tff_dp']

html_theme = 'furo'
html_title = 'tff_dp'
# Name of the repository at GitHub, for links to Colab. It has none yet.
html_context = {'repository': os.environ.get('TFF_DP_REPOSITORY', '')}
# The entrance, and the notebooks as files.
html_extra_path = ['site/root', '../colab']
templates_path = ['site/templates']
html_static_path = ['site/site.css']
html_css_files = ['site.css']
html_copy_source = False

# The anchors that GitHub gives to headings.
myst_heading_anchors = 4
myst_enable_extensions = ['dollarmath']

# Each takes up to a few minutes of two cores, and is executed again only after a
# change. On busy cores one cell took more than ten minutes.
nb_execution_mode = 'cache'
nb_execution_cache_path = 'build/notebooks'
nb_execution_timeout = 3600
nb_execution_raise_on_error = True
nb_merge_streams = True
# The first cell has commands of IPython in it.
suppress_warnings = ['misc.highlighting_failure']

# Markdown's backquotes: a link if the name is public, else code.
default_role = 'py:obj'
autodoc_default_options = {
    'members': True,
    'inherited-members': 'object,str,tuple,Enum,Exception,PrivacyAccountant',
}
autodoc_member_order = 'bysource'
autodoc_typehints = 'signature'
autodoc_class_signature = 'mixed'
napoleon_numpy_docstring = False
napoleon_use_ivar = True
python_use_unqualified_type_names = True
toc_object_entries_show_parents = 'hide'


def _as_markdown(app, what, name, obj, options, lines):
  """Makes an indented block of a docstring code, as Markdown does."""
  del app, name, obj, options
  text = re.sub(
      r'^(\S.*)\n\n(?= {4})', r'\1\n\n::\n\n', '\n'.join(lines), flags=re.M
  )
  lines[:] = text.split('\n')
  if what in ('attribute', 'property'):
    # Napoleon takes the words before a colon for a type.
    lines[0] = lines[0].replace(': ', ' – ')


def _with_base(app, what, name, obj, options, lines):
  """Puts the text of the base class in place of "See base class."."""
  del app, what, obj, options
  if not (lines and lines[0].startswith('See base class.')):
    return
  owner, _, member = name.rpartition('.')
  for base in pkgutil.resolve_name(owner).__mro__[1:]:
    text = inspect.getdoc(vars(base).get(member)) or ''
    if text and not text.startswith('See base class.'):
      own = lines[0].removeprefix('See base class.').strip()
      lines[:] = [*text.split('\n'), '', own, *lines[1:]]
      return


def _search_no_changes(app, env):
  """Leaves the changelog, which names everything, out of the search."""
  del app
  env.metadata['CHANGELOG']['nosearch'] = ''


def setup(app):
  app.connect('env-updated', _search_no_changes)
  # Before Napoleon reads the sections.
  app.connect('autodoc-process-docstring', _with_base, priority=1)
  app.connect('autodoc-process-docstring', _as_markdown, priority=2)
