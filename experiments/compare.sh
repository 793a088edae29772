#!/bin/sh
# The comparison of docs/results.md: the base model and five methods on the embedded desktop. Starts missing runs and resumes
# interrupted ones of the same version.
#   experiments/compare.sh FOLDER pilot [JOBS]    the runs for choosing learning rates (experiments/rates.txt)
#   experiments/compare.sh FOLDER quick [JOBS]    the comparison with the quick preset's objective
#   experiments/compare.sh FOLDER paper [JOBS]    the comparison with the paper's objective
#   experiments/compare.sh FOLDER offline [JOBS]  rejection sampling, DPO and KTO on the split
#   experiments/compare.sh FOLDER pilot-losses [JOBS]  the runs for choosing the learning rates of the losses
#   experiments/compare.sh FOLDER losses [JOBS]   GRPO, ARPO, and GSPO, SAPO, GiGPO and hints with replay, hard and mixed tasks
#   experiments/compare.sh FOLDER generalise [JOBS]  success on unseen tasks by the number of training tasks
#   experiments/compare.sh FOLDER alone           three pairs, one run at a time with all threads, to measure their duration
# then: experiments/collect.py FOLDER, which adds them to experiments/results/, experiments/table.py and experiments/plot.py. With JOBS, this many
# runs are made in parallel, each with one thread; without it, one at a time. A run takes two to nine minutes.
set -eu
out=${1:?the folder for the runs}
what=${2:?pilot, quick, paper, offline, pilot-losses, losses, generalise or alone}
jobs=${3:-}
here=$(cd "$(dirname "$0")" && pwd)
arpo=${ARPO:-$here/../target/release/arpo}
mkdir -p "$out"

# The sampling and the replay that these comparisons were begun with, from the model in base/, by whose success the lists of tasks
# were made; `generalise` alone has the quick preset's.
earlier="--set task_sampling.order=shuffled --set task_sampling.history=task --set task_sampling.window=32
    --set effort.informative_groups=0 --set replay.capacity=8 --set replay.screens_gib=4.0"

# Points of comparison, fixed before the runs were made: iterations 60, 100 and 140. Every iteration has 64 episodes, and all of
# them count in its two updates, whatever their rewards, so both methods make the same number of updates.
train() { # NAME OBJECTIVE METHOD RATE REGIME SEED
    name=$1 objective=$2 method=$3 rate=$4 regime=$5 seed=$6
    [ -e "$out/$name/checkpoints/step-000140/manifest.json" ] && return
    case $regime in
    mixed) list=quick ;;
    all) list="" ;;
    *) list=$here/$regime.txt ;;
    esac
    # shellcheck disable=SC2086
    set -- $earlier --set model.base="$here/base" --set tasks.generated=0 --set optimiser.batch=all --set effort.solved_rollouts=0
    case $objective in
    paper) set -- "$@" --set loss.normaliser=trajectory --set loss.old=learner --set reward.format_weight=1.0 ;;
    # GSPO and SAPO are defined with this normaliser, so all methods have it
    losses) set -- "$@" --set loss.normaliser=trajectory ;;
    esac
    # the published constants: nothing is tuned for one method, apart from the learning rate, by one rule for all
    case $method in
    grpo) set -- "$@" --set replay.enabled=false ;;
    gspo | sapo) set -- "$@" --config "$here/../configs/$method.toml" ;;
    gigpo) set -- "$@" --set advantage.step_weight=1.0 --set advantage.step_discount=0.95 ;;
    seeded)
        seeds "$regime" "$list" "$seed"
        set -- "$@" --set replay.seed_from="$out/hints-$regime-$seed"
        ;;
    esac
    [ -e "$out/$name/config.toml" ] && set -- "$@" --resume
    "$arpo" train --quiet --out "$out/$name" "$@" --set optimiser.learning_rate="$rate" --set tasks.list="$list" \
        --set seed="$seed" --set iterations=140 --set evaluation.every=20 --set evaluation.samples=4 \
        --set evaluation.unseen=never --set evaluation.held_out=never --set checkpoints.every=20 --set checkpoints.keep=1
}

# Guided rollouts for `seeded`: 8 of each task, which are at most 8 iterations' episodes. So its iteration 120 has used fewer
# episodes than iteration 140 of the others; table.py compares both.
seeds() { # REGIME LIST SEED
    [ -d "$out/hints-$1-$3" ] && return
    "$arpo" rollout --quiet --hint oracle --samples 8 --out "$out/hints-$1-$3.part-$$" --set model.base="$here/base" \
        --set tasks.generated=0 --set tasks.list="$2" --set seed="$3"
    mv -T "$out/hints-$1-$3.part-$$" "$out/hints-$1-$3" 2>/dev/null || rm -rf "$out/hints-$1-$3.part-$$"
}

# Every run has 200 iterations of 64 episodes, whatever the number of its tasks, and no replay, which an endless run has not
# either: only the number of tasks differs. BASE is the base model, the same for all runs of a FOLDER.
generalise() { # NAME TASKS SEED
    [ -e "$out/$1/checkpoints/step-000200/manifest.json" ] && return
    name=$1 tasks=$2 seed=$3
    # what a task's own history changes, tasks that are never repeated do not have
    set -- --set model.base="${BASE:?the base model of these runs}" --set replay.enabled=false --set effort.solved_rollouts=0 \
        --set effort.turns_factor=0 --set effort.informative_groups=0 --set task_sampling.order=shuffled
    if [ "$tasks" = endless ]; then
        set -- "$@" --set tasks.endless=true
    else
        set -- "$@" --set tasks.generated="$tasks"
    fi
    [ -e "$out/$name/config.toml" ] && set -- "$@" --resume
    "$arpo" train --quiet --out "$out/$name" "$@" --set seed="$seed" --set iterations=200 --set evaluation.every=100 \
        --set evaluation.samples=4 --set evaluation.unseen=always --set evaluation.held_out=ends --set checkpoints.every=100 \
        --set checkpoints.keep=1
}

evaluate() { # NAME MODEL
    [ -s "$out/$1.json" ] && return
    "$arpo" eval --json --samples 4 --set tasks.generated=0 --part all --model "$2" >"$out/$1.part"
    mv "$out/$1.part" "$out/$1.json"
}

rate() { # OBJECTIVE METHOD
    awk -v o="$1" -v m="$2" '$1 == o && $2 == m { print $3 }' "$here/rates.txt"
}

offline() { # NAME METHOD RATE SEED
    if [ ! -d "$out/data-$4" ]; then
        "$arpo" rollout --out "$out/data-$4.part-$$" --samples 32 --set model.base="$here/base" \
            --set tasks.list="$here/split.txt" --set seed="$4"
        mv -T "$out/data-$4.part-$$" "$out/data-$4" 2>/dev/null || rm -rf "$out/data-$4.part-$$"
    fi
    if [ ! -d "$out/$1" ]; then
        rm -rf "$out/$1.part"
        "$arpo" offline --method "$2" --data "$out/data-$4" --out "$out/$1.part" --set model.base="$here/base" --set seed="$4" \
            --set optimiser.learning_rate="$3"
        mv "$out/$1.part" "$out/$1"
    fi
    evaluate "$1" "$out/$1/model"
}

one() { # one of the lines below
    case $1 in
    base)
        [ -s "$out/base.json" ] && return
        "$arpo" eval --json --samples 12 --set model.base="$here/base" --set tasks.generated=0 --part all >"$out/base.part"
        mv "$out/base.part" "$out/base.json"
        ;;
    offline) offline "$2-$3-$4-$5" "$3" "$4" "$5" ;;
    generalise) generalise "generalise-$2-$3" "$2" "$3" ;;
    train)
        train "$2-$6-$4-$5-$7" "$3" "$4" "$5" "$6" "$7"
        case $2-$6 in
        quick-split | quick-all) evaluate "$2-$6-$4-$5-$7" "$out/$2-$6-$4-$5-$7/checkpoints/step-000140/model" ;;
        esac
        ;;
    esac
}

# One run per line: train KIND OBJECTIVE METHOD RATE REGIME SEED, offline KIND METHOD RATE SEED, or generalise TASKS SEED.
list() {
    case $what in
    pilot)
        for seed in 1 2; do
            for rate in 5e-5 1e-4 2e-4 4e-4; do
                for objective in quick paper; do
                    for method in arpo grpo; do
                        echo train pilot-$objective $objective $method $rate split $seed
                    done
                done
            done
            for rate in 1e-4 2e-4 4e-4 8e-4; do
                echo offline pilot-offline rejection $rate $seed
            done
            for rate in 5e-6 1e-5 2e-5 5e-5; do
                echo offline pilot-offline dpo $rate $seed
            done
            for rate in 2e-6 5e-6 1e-5 2e-5; do
                echo offline pilot-offline kto $rate $seed
            done
        done
        ;;
    quick | paper)
        [ "$what" = quick ] && echo base
        for seed in 11 12 13 14 15 16 17 18; do
            for regime in hard mixed split easy all; do
                case $regime in easy | all) [ $seed -le 13 ] || continue ;; esac
                for method in arpo grpo; do
                    echo train "$what" "$what" $method "$(rate "$what" $method)" $regime $seed
                done
            done
        done
        ;;
    offline)
        for seed in 11 12 13 14 15 16 17 18; do
            for method in rejection dpo kto; do
                echo offline offline $method "$(rate offline $method)" $seed
            done
        done
        ;;
    pilot-losses)
        for seed in 1 2; do
            for rate in 5e-5 1e-4 2e-4 4e-4; do
                for method in grpo arpo gspo sapo gigpo seeded; do
                    echo train pilot-losses losses $method $rate split $seed
                done
            done
        done
        ;;
    losses)
        for seed in 11 12 13 14 15 16 17 18; do
            for regime in hard mixed; do
                for method in grpo arpo gspo sapo gigpo seeded; do
                    rate=$(rate losses $method)
                    [ -n "$rate" ] || { echo "$0: rates.txt has no line 'losses $method RATE': make pilot-losses first" >&2; exit 2; }
                    echo train losses losses $method "$rate" $regime $seed
                done
            done
        done
        ;;
    generalise)
        for seed in 11 12 13 14 15; do
            for tasks in 16 64 256 1024 4096 endless; do
                echo generalise $tasks $seed
            done
        done
        ;;
    alone)
        for regime in hard mixed split; do
            for method in arpo grpo; do
                echo train alone quick $method "$(rate quick $method)" $regime 11
            done
        done
        ;;
    one) ;;
    *) echo "$0: $what: expected pilot, quick, paper, offline, pilot-losses, losses, generalise or alone" >&2 && exit 2 ;;
    esac
}

if [ "$what" = one ]; then
    shift 2
    one "$@"
elif [ -n "$jobs" ]; then
    list | OMP_NUM_THREADS=1 xargs -r -P "$jobs" -L 1 "$0" "$out" one
else
    list | xargs -r -L 1 "$0" "$out" one
fi
