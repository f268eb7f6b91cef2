# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Builds the distribution tff-dp.

tensorflow-federated is deliberately not among the requirements: its own pins
(jaxlib 0.4.14) cannot be installed any more, the overrides that work around
them do not travel in a wheel, and on a Python that it does not support pip
falls back to TFF 0.1.0 without a word. requirements.lock and, for Python 3.12
and 3.13, requirements.current.lock hold the tested sets; `tff_dp` says at
import what is missing.
"""

import pathlib
import re

import setuptools

_ROOT = pathlib.Path(__file__).parent
_VERSION = re.search(
    r"^__version__ = '(.+)'$",
    (_ROOT / 'tff_dp' / '_version.py').read_text(),
    flags=re.MULTILINE,
).group(1)

setuptools.setup(
    name='tff-dp',
    version=_VERSION,
    description=(
        'Differentially private federated learning for TensorFlow Federated,'
        ' with its guarantee stated'
    ),
    long_description=(_ROOT / 'README.md').read_text(),
    long_description_content_type='text/markdown',
    author='The tff_dp Authors',
    license='Apache-2.0',
    classifiers=[
        'Intended Audience :: Science/Research',
        'License :: OSI Approved :: Apache Software License',
        'Operating System :: POSIX :: Linux',
        'Programming Language :: Python :: 3.11',
        'Programming Language :: Python :: 3.12',
        'Programming Language :: Python :: 3.13',
        'Topic :: Scientific/Engineering :: Artificial Intelligence',
    ],
    packages=setuptools.find_packages(include=['tff_dp', 'tff_dp.*']),
    package_data={
        'tff_dp': ['*.json'],
        'tff_dp.mechanisms.matrix': ['*.json'],
        'tff_dp.statement': ['*.jinja2'],
    },
    python_requires='>=3.11',
    # A subset of what a working TFF environment has.
    install_requires=[
        'absl-py',
        'dp-accounting>=0.4.3',
        'jinja2',
        'matplotlib',
        'numpy',
        'scipy',
        'tqdm',
    ],
    # No extras: Ray, Dask, Flower, NVFlare and what a GPU needs have locks, too,
    # whose hashes an extra would not carry.
    entry_points={'console_scripts': ['tff-dp = tff_dp.cli.main:main']},
)
