#!/usr/bin/env bash
# What the browser tests of the persona pages need: Debian's Chromium, and playwright for the Python that runs the tests.
#
# usage: bash scripts/browser.sh        PYTHON chooses the interpreter (default: python)
set -euo pipefail
python=${PYTHON:-python}

if [ ! -x /usr/bin/chromium ]; then
    if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null 2>&1; then
        echo "browser.sh: /usr/bin/chromium is not there, and installing it takes root and apt-get;" \
            "the browser tests are skipped, all others run" >&2
        exit 1
    fi
    echo "installing Debian's chromium …" >&2
    apt-get update -qq >&2
    apt-get install -qq -y --no-install-recommends chromium fonts-dejavu-core >&2
fi
if ! "$python" -c 'import playwright' 2>/dev/null; then
    echo "installing playwright for $("$python" --version) …" >&2
    "$python" -m pip install --quiet --disable-pip-version-check playwright >&2
fi
echo "browser tests can run: $(/usr/bin/chromium --version 2>/dev/null | head -1)"
