# Sourced by quickstart.sh and test.sh: a virtual environment in .venv with what the extras name, made once.
#
# usage: . scripts/env.sh EXTRAS        e.g. "embedded" or "embedded,test"
# PYTHON chooses the interpreter (3.11 or newer); PERSONALINK_VENV another place than .venv.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
extras=$1
venv=${PERSONALINK_VENV:-.venv}

find_python() {
    local candidate
    for candidate in ${PYTHON:-} python3 python3.13 python3.12 python3.11 python; do
        if command -v "$candidate" >/dev/null 2>&1 &&
            "$candidate" -c 'import sys; raise SystemExit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    echo "personalink needs Python 3.11 or newer; set PYTHON=/path/to/python" >&2
    exit 2
}

# the environment is made anew only when what it is made from changes
stamp="$venv/.made-from"
python=$(find_python)
wanted="$extras $("$python" --version) $(cat pyproject.toml scripts/constraints.txt | cksum)"
if [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ]; then
    echo "making $venv with personalink[$extras] …" >&2
    "$python" -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
        --constraint scripts/constraints.txt -e ".[$extras]" >&2
    echo "$wanted" >"$stamp"
fi
PATH="$PWD/$venv/bin:$PATH"
export PATH
