#!/usr/bin/env bash
# TNet beside what it is compared with, on street scenes, digits and ten classes of ImageNet (docs/zoom.md). From the
# repository's root:
#
#   bash recipes/zoom.sh list                  # its jobs, one per line
#   bash recipes/zoom.sh jobs                  # train them all; stopped at any moment, the same words go on from there
#   bash recipes/zoom.sh jobs '^gtsdb tnet'    # only jobs whose line matches
#   bash recipes/zoom.sh one gtsdb tnet 0 3    # a single job
#   bash recipes/zoom.sh measure               # figures of all that is trained so far, into out/json/
#
#   bash recipes/zoom.sh choose                # settings of street scenes, compared on tenths that fold 4 tests
#
# Networks go to out/train/NAME, what they say while training to out/logs/NAME.
# To set: AT_ONCE (jobs at a time, 1), SEEDS ('0 1 2'), MORE (words for every training, as '--set save_every=30'),
# DEVICE (of the measures, auto), DIGITS (the weights of tnet-digits), FOVEA (the command, fovea).
#
# Equal terms. gtsdb: 60 epochs each (TNet 30 + 30), ImageNet's features, the same augmentation of scenes, five folds
# that answer for all 304. imagenette: 30 epochs each (Saccader 20 + 3 + 7), the same pictures, augmentation and 0.375 of
# the paper's width, with batch norm and without. digits: all begin as the tnet-digits that comes with fovea, or
# as its extractor, and have 3 epochs on 10,000 of its canvases.
set -u
shopt -s nullglob
FOVEA=${FOVEA:-fovea} SEEDS=${SEEDS:-0 1 2} DIGITS=${DIGITS:-src/fovea/weights/tnet-digits.safetensors}
TRAIN=(2-9 0-1+4-9 0-3+6-9 0-5+8-9 0-7) TEST=(0-1 2-3 4-5 6-7 8-9) # tenths of the scenes, fold by fold
mkdir -p out/logs out/json

train() { # NAME RECIPE words…; nothing where it is done
  local name=$1 recipe=$2
  shift 2
  [ -f "out/train/$name/card.json" ] ||
    $FOVEA train "recipes/$recipe.toml" --name "$name" --resume "$@" ${MORE:-} >>"out/logs/$name" 2>&1
}

from() { echo "--set network.weights=out/train/$1/weights.safetensors"; }

scenes() { # NAME END words, words of the first stage, of the second; both stages
  train $1-first-$2 tnet-gtsdb-first $3 $4 && train $1-$2 tnet-gtsdb $3 $(from $1-first-$2) $5
}

# TNet's own rule of reward: one walk per picture, 1 where it is right, a moving average; λ = 0.3, then 0.05 up to level 2
O=network.options
PAPER="--set $O.samples=1 --set $O.while_training=2 --set $O.explore=0 --set $O.sharpness=1 --set loss.reward=right --set loss.baseline=average"
PAPER_FIRST="$PAPER --set loss.whole_reward=0.3"
PAPER_SECOND="${PAPER/training=2/training=4} --set loss.whole=0.05 --set loss.whole_reward=0.05 --set loss.upto=2"

setting() { # of where street scenes are looked at, by its name: four walks per picture, or all places of it
  local all="--set $O.samples=1 --set $O.while_training=16"
  local walks="--set $O.samples=4 --set $O.while_training=2 --set $O.explore=1.0"
  case $1 in
    flat) echo "$walks --set $O.sharpness=1 --set optimizer.lr=3e-4" ;;
    free) echo "$walks --set $O.sharpness=0" ;;
    fine) echo "$walks --set $O.sharpness=0 --set $O.stage=2" ;; # chosen by a map of 8 pixels per cell
    all) echo "$all --set $O.sharpness=0" ;;
    allfine) echo "$all --set $O.sharpness=0 --set $O.stage=2" ;;
    allsharp) echo "$all --set $O.sharpness=5 --set $O.stage=2" ;;
    paper) echo "$PAPER_FIRST" ;;
  esac
}

first() { # SETTING SEED; trained on tenths 2 to 7, compared on 8 and 9, which fold 4 tests
  train tnet-choose-first-$1-seed$2 tnet-gtsdb-first --set seed=$2 $CHOOSE $(setting $1)
}
CHOOSE="--set data.train=gtsdb:folds=2-7 --set data.test=gtsdb:folds=8-9"

second() { # NAME SEED SETTING words; from a first stage of that setting
  train tnet-choose-$1-seed$2 tnet-gtsdb --set seed=$2 $CHOOSE $(from tnet-choose-first-$3-seed$2) "${@:4}"
}

choose() { # one after the other, by what is found and answered there; what each of these reached: docs/zoom.md
  local setting seed
  for seed in 0 1; do
    for setting in paper free all flat fine allfine allsharp; do first $setting $seed; done
    second on $seed all
    second half $seed all --set $O.explore=0.5
    second learned $seed all --set $O.average=learned
    second paper $seed paper $PAPER_SECOND
  done
  grep -A3 '"score"' out/train/tnet-choose-*/card.json
}

gtsdb() { # tnet, paper, 896, 448, 224 or boxes; seed; fold
  local end=seed$2-fold$3 whole=efficientnet_lite0-gtsdb crop=
  [ "$1" = boxes ] && crop=,crop=boxes
  local words="--set seed=$2 --set data.train=gtsdb:folds=${TRAIN[$3]}$crop --set data.test=gtsdb:folds=${TEST[$3]}$crop"
  case $1 in
    first) train tnet-gtsdb-first-$end tnet-gtsdb-first $words ;; # stage of tnet
    tnet) scenes tnet-gtsdb $end "$words" "" "" ;;
    paper) scenes tnet-gtsdb-paper $end "$words" "$PAPER_FIRST" "$PAPER_SECOND" ;;
    boxes) train $whole-boxes-$end $whole-boxes $words ;;
    *) train $whole-$1-$end $whole $words --set network.size=$1 ;;
  esac
}

imagenette() { # tnet, unregularized, bagnet77, saccader or dram; norm or plain; seed
  local end=imagenette-$2-seed$3 norm=false
  [ "$2" = norm ] && norm=true
  local words="--set seed=$3 --set network.options.norm=$norm --set epochs=30"
  case $1 in
    unregularized) train tnet-unregularized-$end tnet-imagenette-unregularised $words ;;
    saccader) train saccader-representation-$end saccader-imagenette-representation $words --set epochs=20 &&
      train saccader-locations-$end saccader-imagenette-locations $words --set epochs=3 $(from saccader-representation-$end) &&
      train saccader-$end saccader-imagenette $words --set epochs=7 $(from saccader-locations-$end) ;;
    *) train $1-$end $1-imagenette $words ;;
  esac
}

digits() { # tnet, 896, 224 or majority
  local words="--set network.weights=$DIGITS" data=megapixel:canvas=896,count=10000,clutter=50,noise=0,source=mnist+digits,split=train
  local alike="--set data.train=$data --set epochs=3 --set batch=32 --set optimizer.lr=5e-4"
  case $1 in
    majority) train tnet-digits-majority tnet-digits-majority $words ;;
    tnet) train tnet-digits-more tnet-digits $words $alike --set $O.samples=2 --set $O.explore=1.0 --set $O.sharpness=0 \
      --set $O.average=learned --set loss.baseline=picture --set loss.reward=probability --set loss.whole_reward=0 \
      --set loss.whole=0.6 ;; # of four settings the best on 2,000 canvases of training digits
    *) train resnet10t-digits-$1 resnet10t-digits $words $alike --set network.size=$1 --set data.side=$1 \
      --set settle=100 ;; # statistics of batch norm that large canvases have settled
  esac
}

list() {
  local network seed fold norm
  for network in tnet 896 448 224 boxes paper; do
    for seed in $SEEDS; do for fold in 0 1 2 3 4; do echo gtsdb $network $seed $fold; done; done
  done
  for network in tnet 896 224 majority; do echo digits $network; done
  for network in tnet saccader bagnet77 dram; do
    for norm in norm plain; do for seed in $SEEDS; do echo imagenette $network $norm $seed; done; done
  done
  for seed in $SEEDS; do echo imagenette unregularized plain $seed; done
}

jobs() { # all, or those that match
  list | grep -E -- "${1:-.}" | xargs -P "${AT_ONCE:-1}" -I{} bash -c "bash '$0' one {} || echo 'failed: {}'"
  # what is done asks nothing of a command that always fails
  echo "left: $(list | grep -E -- "${1:-.}" | while read -r job; do FOVEA=false bash "$0" one $job || echo "$job"; done | wc -l)"
}

nets() { # folders; those that are trained, as options
  local folder
  for folder in "$@"; do [ -f "$folder/card.json" ] && echo "--net $folder/weights.safetensors"; done
}

figures() { # NAME words…; of networks, where some are trained
  local name=$1
  shift
  [[ "$*" != *--net* && "$1" = measure ]] && return
  $FOVEA "$@" --device "${DEVICE:-auto}" --json "out/json/$name.json" || echo "failed: $name"
}

measure_gtsdb() {
  local whole=out/train/efficientnet_lite0-gtsdb tnet="$(nets out/train/tnet-gtsdb-seed*)"
  # differences are from the network that is named first: 896 px, then 224 px
  figures folds-gtsdb measure folds --data gtsdb $(nets $whole-{896,448,224}-seed*) $tnet $(nets out/train/tnet-gtsdb-paper-seed*) \
    --glimpses 0,2,4 --control random --control center
  figures folds-gtsdb-224 measure folds --data gtsdb $(nets $whole-224-seed*) $tnet --glimpses 4
  figures folds-gtsdb-boxes measure folds --data gtsdb:crop=boxes $(nets $whole-boxes-seed*)
}

measure_digits() {
  local one=megapixel:canvas=896,count=1000,clutter=50,noise=0,source=mnist
  figures zoom-digits measure zoom --data $one --split test --net $DIGITS \
    $(nets out/train/{tnet-digits-more,resnet10t-digits-896,resnet10t-digits-224}) \
    --glimpses 0,1,2,4 --batch 64
  figures zoom-digits-majority measure zoom --data ${one/896,/896,copies=3,others=2,} --split test \
    $(nets out/train/tnet-digits-majority) --glimpses 0,2,4,8,12,16 --batch 64
}

measure_imagenette() { # Fig. 2, Table 1; the glimpses without the overview (5.3), TNet without per-feature regularization (5.4)
  figures zoom-imagenette measure zoom --data imagenette --split test --glimpses 0,1,2,3,4,5,6,8,12 --batch 64 --out out/json/fig2.png \
    $(nets out/train/{tnet,bagnet77,saccader,dram}-imagenette-{norm,plain}-seed* out/train/tnet-unregularized-imagenette-*)
}

measure_cost() { # time and memory, alone on the machine
  figures bench-zoom bench zoom --batches 64 --glimpses 0,2,4,6 --classes 62 --rounds 10
}

measure() {
  measure_gtsdb
  measure_digits
  measure_imagenette
  measure_cost
}

case ${1:-} in
  one) shift && "$@" ;;
  list | jobs | choose | measure) "$@" ;;
  *) sed -n '2,/^set/s/^# \{0,1\}//p' "$0" && exit 2 ;;
esac
