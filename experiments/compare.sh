#!/bin/sh
# The comparison of docs/results.md: the base and five methods on the embedded desktop, three seeds each. Runs what is not there yet,
# goes on with what was interrupted; one run after the other takes about three hours on two cores.
#   experiments/compare.sh FOLDER      then: experiments/table.py FOLDER
set -eu
out=${1:?the folder for the runs}
here=$(dirname "$0")
arpo=${ARPO:-$here/../target/release/arpo}
mkdir -p "$out"

# The points at which runs are compared were fixed before they were made: iterations 60, 100, 140.
train() { # NAME SEED SETTING...
    name=$1 seed=$2
    shift 2
    "$arpo" train --quiet --resume --out "$out/$name" --set iterations=140 --set evaluation.every=20 \
        --set evaluation.samples=4 --set evaluation.held_out=never --set checkpoints.every=20 --set seed="$seed" "$@"
}

judge() { # NAME MODEL
    [ -s "$out/$1.json" ] && return
    "$arpo" eval --json --samples 4 --set tasks.list="" --part all --model "$2" >"$out/$1.part"
    mv "$out/$1.part" "$out/$1.json"
}

if [ ! -s "$out/base.json" ]; then
    "$arpo" eval --json --samples 12 --set tasks.list="" --part all >"$out/base.part"
    mv "$out/base.part" "$out/base.json"
fi
for seed in 11 12 13; do
    for replay in true false; do
        if [ $replay = true ]; then method=arpo; else method=grpo; fi
        for regime in mixed hard easy split all; do
            case $regime in
            mixed) list=quick ;;
            all) list="" ;;
            *) list=$here/$regime.txt ;;
            esac
            train "$regime-$method-$seed" "$seed" --set replay.enabled=$replay --set tasks.list="$list"
        done
        for regime in split all; do
            name=$regime-$method-$seed
            judge "$name" "$out/$name/checkpoints/step-000140/model"
        done
    done
    if [ ! -d "$out/data-$seed" ]; then
        rm -rf "$out/data.part"
        "$arpo" rollout --out "$out/data.part" --samples 32 --set tasks.list="$here/split.txt" --set seed="$seed"
        mv "$out/data.part" "$out/data-$seed"
    fi
    for method in rejection dpo kto; do
        name=split-$method-$seed
        # at the others' rate DPO and KTO push failures away until much of the base is lost
        if [ $method = rejection ]; then rate=2e-4; else rate=2e-5; fi
        if [ ! -d "$out/$name" ]; then
            rm -rf "$out/offline.part"
            "$arpo" offline --method $method --data "$out/data-$seed" --out "$out/offline.part" \
                --set seed="$seed" --set optimiser.learning_rate=$rate
            mv "$out/offline.part" "$out/$name"
        fi
        judge "$name" "$out/$name/model"
    done
done
