#!/usr/bin/env bash
# vLLM as personalink wants it: one server a GPU on consecutive ports, or one on the CPU where there is no GPU.
#
# usage: bash scripts/serve_vllm.sh [--dry-run] MODEL [PORT …] [-- FLAG …]
#   MODEL      a Hugging Face folder, or the name of one that is on this machine or can be fetched
#   PORT       none: 8000 and on, one for each GPU; otherwise one server for each port, which share the GPUs out evenly
#              (a model on two GPUs: one port, and -- --tensor-parallel-size 2)
#   --dry-run  print the lines that would run, and run nothing
#   FLAG       more flags of vLLM's, such as --max-num-seqs 512; the last of two equal ones counts
# PYTHON chooses the interpreter that has vLLM; CUDA_VISIBLE_DEVICES the GPUs; VLLM_BATCH_INVARIANT=1 see docs/gpu.md.
# Flags as of vLLM 0.32.
set -euo pipefail

usage() {
    sed -n '2,/^# Flags/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
    exit 2
}

dry=
[ "${1:-}" = --dry-run ] && dry=yes && shift
model=${1:-}
case $model in "" | -*) usage ;; esac
shift
ports=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    case $1 in *[!0-9]*) usage ;; esac
    ports+=("$1")
    shift
done
[ "${1:-}" = -- ] && shift
more=("$@")

# the GPUs: what CUDA_VISIBLE_DEVICES names, else what the driver lists
gpus=()
if [ "${CUDA_VISIBLE_DEVICES-unset}" != unset ]; then
    IFS=, read -r -a gpus <<<"$CUDA_VISIBLE_DEVICES"
elif command -v nvidia-smi >/dev/null 2>&1; then
    while read -r index; do gpus+=("$index"); done < <(nvidia-smi --query-gpu=index --format=csv,noheader 2>/dev/null)
fi
if [ ${#ports[@]} -eq 0 ]; then
    for ((i = 0; i < (${#gpus[@]} ? ${#gpus[@]} : 1); i++)); do ports+=("$((8000 + i))"); done
fi
if [ ${#ports[@]} -gt $((${#gpus[@]} ? ${#gpus[@]} : 1)) ]; then
    echo "serve_vllm: ${#ports[@]} ports and ${#gpus[@]} GPUs; name at most one port a GPU (one where there is none)" >&2
    exit 2
fi

flags=(
    --host 127.0.0.1                 # vLLM listens on every interface otherwise, without a key
    --generation-config vllm         # not the model's own file, whose penalties and max_new_tokens leak into bare requests
    --enable-prompt-tokens-details   # cached tokens in every reply's usage, so that the ledger can tell reuse
    --enable-prefix-caching          # a user's persona is read once; on by default for most models, here for all
    --max-model-len auto             # the model's own length, or the longest that fits: Oracle needs about 19,000 tokens
    # no run of white space until max_tokens in a rewrite; "auto", the default backend, does not take the setting
    --structured-outputs-config '{"backend": "xgrammar", "disable_any_whitespace": true}'
    --disable-uvicorn-access-log     # one line a request otherwise
)
settings=(VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1)            # nothing is reported to anybody
[ -d "$model" ] && settings+=(HF_HUB_OFFLINE=1)            # a folder is whole: no hub is asked
if [ ${#gpus[@]} -eq 0 ]; then
    flags+=(
        --dtype float32              # bfloat16 is slow without AVX-512, and float32 answers repeat
        --enforce-eager              # no compiler is needed, and the start is a minute shorter
    )
    settings+=(
        "VLLM_CPU_KVCACHE_SPACE=${VLLM_CPU_KVCACHE_SPACE:-1}"  # GiB of keys and values
        VLLM_CPU_NUM_OF_RESERVED_CPU=0                         # no core is kept from the model
    )
fi

serve() { # the i-th server; the module form, since the CPU's package has no working `vllm serve`
    local line=(env "${settings[@]}")
    if [ ${#gpus[@]} -gt 0 ]; then
        local share=$((${#gpus[@]} / ${#ports[@]}))
        line+=("CUDA_VISIBLE_DEVICES=$(IFS=, && echo "${gpus[*]:$1*share:share}")")
    fi
    line+=("${PYTHON:-python}" -m vllm.entrypoints.openai.api_server --model "$model" --port "${ports[$1]}")
    line+=("${flags[@]}" ${more[@]+"${more[@]}"})
    if [ -n "$dry" ]; then
        printf "%q " "${line[@]}" && echo
    else
        exec "${line[@]}"
    fi
}

if [ -n "$dry" ]; then
    for i in "${!ports[@]}"; do serve "$i"; done
elif [ ${#ports[@]} -eq 1 ]; then
    serve 0
else # one ends: all end
    servers=()
    trap 'kill "${servers[@]}" 2>/dev/null || true' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    for i in "${!ports[@]}"; do
        serve "$i" &
        servers+=("$!")
    done
    wait -n
fi
