#!/usr/bin/env bash
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
#
# Makes .venv with Python 3.11 and everything in requirements.lock, or does
# nothing, within milliseconds, if it is there and up to date. With uv where
# that is installed, else with pip. PYTHON names another Python 3.11 than the
# first one found.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

venv=.venv
stamp="${venv}/tff_dp_environment"
# What the environment is made from. It is up to date if the stamp, which is
# written last, holds the hash of exactly this, so half an installation is not.
inputs=(requirements.lock setup.py pyproject.toml tools/make_environment.sh)
# The lock is complete: nothing may be added to it, whatever packages ask for.
locked=(--no-deps --require-hashes --requirement requirements.lock)
editable=(--no-deps --no-build-isolation --editable .)
# Written for a later Python, and never imported.
not_compiled='/vizier/_src/pyglove/backend\.py$'

say() { echo "$*" >&2; }

fail() {
  say "error: $1"
  say "why: $2"
  say "try: $3"
  exit 3
}

wanted() { cat "${inputs[@]}" | sha256sum | cut -d ' ' -f 1; }

up_to_date() {
  [[ -x "${venv}/bin/python" && -f "${stamp}" \
      && "$(<"${stamp}")" == "$(wanted)" ]]
}

check_platform() {
  if [[ "$(uname -s) $(uname -m)" != 'Linux x86_64' ]]; then
    fail "$(uname -s) on $(uname -m) is not supported" \
      'TensorFlow Federated is built for Linux on x86_64 only' \
      'WSL2 on Windows, a linux/amd64 container on macOS'
  fi
}

is_python311() {
  "$1" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' \
    >/dev/null 2>&1
}

# Prints the Python to use, or nothing.
find_python() {
  local candidate
  for candidate in ${PYTHON:-} python3.11 python3 python; do
    if is_python311 "${candidate}"; then
      echo "${candidate}"
      return
    fi
  done
}

make_with_uv() {
  # Bytecode is compiled below: uv stops at the one file that cannot be.
  uv venv --quiet --allow-existing --python "${python:-3.11}" "${venv}"
  uv pip install --quiet --python "${venv}/bin/python" "${locked[@]}"
  uv pip install --quiet --python "${venv}/bin/python" "${editable[@]}"
}

make_with_pip() {
  if ! "${python}" -m venv "${venv}" >/dev/null; then
    fail "${python} cannot make a virtual environment" \
      'its venv or ensurepip module is missing' \
      'on Debian and Ubuntu: apt-get install python3.11-venv; or install uv'
  fi
  # Twice quiet: errors only.
  local pip=("${venv}/bin/python" -m pip install --quiet --quiet --no-input
             --disable-pip-version-check --progress-bar off)
  "${pip[@]}" --no-compile "${locked[@]}"
  "${pip[@]}" --no-compile "${editable[@]}"
}

# Importing TFF takes several times as long without bytecode, and where
# PYTHONDONTWRITEBYTECODE is set Python would never write it on its own.
compile_bytecode() {
  "${venv}/bin/python" -m compileall -qq -j 0 -x "${not_compiled}" \
    "${venv}"/lib/python3.11/site-packages
}

make_environment() {
  python=$(find_python)
  local tool=pip
  if command -v uv >/dev/null; then
    tool=uv
  elif [[ -z "${python}" ]]; then
    fail 'neither uv nor Python 3.11 was found' \
      'TensorFlow Federated 0.87 is tested on Python 3.11 only' \
      'install uv, or Python 3.11 with venv, or name one: PYTHON=/path/to/it'
  fi
  if [[ -e "${venv}" && ! -e "${stamp}" ]]; then
    fail "${venv} exists, but was not made by this project" \
      'it would have to be deleted' \
      "move it away, or delete it yourself: rm -r ${venv}"
  fi
  say "Making ${venv} with ${tool} and $(grep -c '==' requirements.lock)" \
    'packages (2.6 GB); this may take some minutes.'
  # From here on it is ours, and unfinished. What an older lock has installed
  # must not stay, so it is made anew.
  rm -rf "${venv}"
  mkdir "${venv}"
  echo unfinished > "${stamp}"
  "make_with_${tool}"
  compile_bytecode
  wanted > "${stamp}"
  say "Made ${venv} in ${SECONDS} s."
}

if up_to_date; then
  exit 0
fi
check_platform
# Another `make` may be at it: wait for it, then look again.
exec 9> "${venv}.lock"
flock 9
if ! up_to_date; then
  make_environment
fi
