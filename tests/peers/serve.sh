#!/bin/sh
# `arpo serve` beside transformers' server: tests/peers/serve.sh ARPO FOLDER [DEVICE [MODEL [CLIENTS]]], by hand on a machine with a GPU,
# with `transformers[serving]` 5.17 and accelerate in the Python environment that is active. Writes a model with random weights into
# FOLDER (15 GB for the 7B), serves the same shapes with both, one after the other, and prints the two reports of `arpo bench serve`,
# which takes the first text that is not empty for the first token: every id of that model has a text. A FOLDER is used again if it
# has a model already: remove one that an older arpo wrote, in whose vocabulary most ids have no text.
# transformers computes one request with images at a time, so it gets few clients and one episode each.
set -eu

arpo=$1
folder=$2
device=${3:-cuda}
model=${4:-7b}
clients=${5:-1,8}
port=${ARPO_PEER_PORT:-8012}
load="--model $model --episodes 1 --tokens 100 --json"
server=

clean_up() {
    trap - EXIT INT TERM
    [ -z "$server" ] || kill -s KILL -- "-$server" 2>/dev/null || true
}
trap clean_up EXIT
trap 'exit 1' INT TERM

printf 'arpo serve\n'
# shellcheck disable=SC2086
timeout 300 "$arpo" bench serve --device "$device" $load --clients "$clients"

[ -e "$folder/config.json" ] || timeout 300 "$arpo" bench serve --device "$device" --model "$model" --save "$folder"
torch_device=$device
[ "$device" = cpu ] || torch_device=cuda:0
setsid transformers serve "$folder" --host 127.0.0.1 --port "$port" --device "$torch_device" --dtype auto \
    --attn-implementation sdpa >"$folder/serve.log" 2>&1 </dev/null &
server=$!
left=90
until curl --silent --fail --max-time 2 --output /dev/null "http://127.0.0.1:$port/health"; do
    left=$((left - 1))
    if [ $left -eq 0 ] || ! kill -0 "$server" 2>/dev/null; then
        printf 'transformers serve did not start: %s\n' "$(tail -n 1 "$folder/serve.log")" >&2
        exit 1
    fi
    sleep 2
done
printf 'transformers serve\n'
# it takes minutes: what one number of clients saw is printed before the next begins
for count in $(printf %s "$clients" | tr , ' '); do
    # shellcheck disable=SC2086
    timeout 500 "$arpo" bench serve --url "http://127.0.0.1:$port/v1" --name "$folder" $load --clients "$count"
done
