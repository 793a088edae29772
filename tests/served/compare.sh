#!/bin/sh
# A checkpoint of ours behind a chat server against the same in the built-in engine, on the 64 tasks of the list `quick`.
#   tests/served/compare.sh http://127.0.0.1:9100/v1 NAME [SAMPLES]
# The server, for example vLLM on a CPU (it needs a minute):
#   VLLM_CPU_KVCACHE_SPACE=1 vllm serve models/pocket --served-model-name NAME --port 9100 --dtype float32 \
#       --max-model-len 4096 --limit-mm-per-prompt '{"image": 16}' --enforce-eager
# Fails unless the built-in engine's success lies within the 95 % interval of the server's.
set -eu
server=${1:?the address of a chat server, with /v1}
name=${2:?the name of the model there}
samples=${3:-12}
arpo=${ARPO:-$(dirname "$0")/../../target/release/arpo}
served=$("$arpo" eval --json --samples "$samples" --policy chat --model "$name" --set chat.servers="$server" \
    --set tasks.list=quick --set collect.desktops=16)
own=$("$arpo" eval --json --samples "$samples" --set tasks.list=quick)
python3 - "$served" "$own" <<'END'
import json, sys
served, own = (json.loads(text)["success"] for text in sys.argv[1:])
for name, found in (("served", served), ("built in", own)):
    print(f"{name:9} {found['mean']:.3f} [{found['low']:.3f}, {found['high']:.3f}] {found['rollouts']} rollouts")
sys.exit(not served["low"] <= own["mean"] <= served["high"])
END
