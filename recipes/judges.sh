#!/usr/bin/env bash
# The experiments of docs/wsol.md, docs/twostream.md and docs/retrieval.md over three seeds: localization with maps of
# 14 x 14 (five techniques, two networks), every row of the thesis' tables, embeddings of birds. About half an hour of
# one large GPU that seven runs share. In the repository's folder:
#
#   bash recipes/judges.sh train      (again after a stop: what is done is left out)
#   bash recipes/judges.sh measure    (into out/judges/json)
#   bash recipes/judges.sh list       (what both would run, a line each)
#   bash recipes/judges.sh sweep      (where ADL goes, chosen on part=choose)
#
# FOVEA names the command, P how many run at once, OUT the folder, RESNET50 the weights of ResNet-50: a file that
# fovea.load("timm/resnet50").save wrote, resnet50.safetensors unless given.
set -u
export OMP_NUM_THREADS=2
FOVEA=${FOVEA:-python3 -m fovea} P=${P:-7} OUT=${OUT:-out/judges} RESNET50=${RESNET50:-resnet50.safetensors}
JSON=$OUT/json o=network.options

train() { # NAME RECIPE SETTING…
  local name=$1 recipe=$2; shift 2
  [ -s "$OUT/$name/weights.safetensors" ] && return
  printf '%s train recipes/%s.toml --name %s --out %s --fresh' "$FOVEA" "$recipe" "$name" "$OUT/$name"
  printf ' --set %q' "$@"; echo
}
measure() { # NAME OF MEASURE, OPTION…
  printf '%s measure' "$FOVEA"; printf ' %q' "$@"; echo
}
nets() { for name in "$@"; do for seed in 0 1 2; do echo --net "$OUT/$name-seed$seed/weights.safetensors"; done; done; }

table() { # NAME SETTING…: a row of the thesis' tables
  train "$1-seed$seed" twostream-cub100-table "seed=$seed" "${@:2}"
}
localization() { # NAME SETTING…: a technique over one of the networks
  train "$1_$body-seed$seed" wsol-cub100 "seed=$seed" "${@:2}"
}
birds() { # NAME RECIPE SETTING…: tested on species that no setting was chosen on
  train "$1_$body-seed$seed" "$2" "seed=$seed" "network.name=embedding/$net" data.train=cub100:labels=50-99 \
    data.test=cub100:labels=0-49 "${@:3}"
}

bodies() { # every network: its short name, itself, where ADL goes
  echo lite0 efficientnet_lite0 '["blocks.4","bn2"]'; echo res50 "$RESNET50" '["layer3","layer4"]'
}
first() { # what others start from, or take their patches from
  for seed in 0 1 2; do table none $o.local=none; table attention; done
}
second() {
  for seed in 0 1 2; do
    table cnn $o.local=cnn; table lstm $o.local=lstm
    table self $o.self_attention=true; table self-first $o.self_attention=true $o.asked_by=first
    table unranked loss.rank=0; table detached loss.detach_global=true; table patch448 $o.patch=448
    table prototypes $o.source=prototypes:protopnet-cub100,count=5
    table own "$o.source=l2caf:$OUT/none-seed$seed/weights.safetensors,thresholds=0.15/0.4,pad=0.1"
    for steps in 1 3 6 10; do
      table "read$steps" "network.weights=$OUT/attention-seed$seed/weights.safetensors" "$o.readout=sum:$steps" \
        'optimizer.groups=[{match="local.classifier.*"},{match="*",lr=0}]' epochs=3
    done
    while read -r body net adl; do
      localization gap14 "network.name=gap/$net"
      localization has14 "network.name=gap/$net" augment.hide=0.5
      localization cutmix14 "network.name=gap/$net" augment.cutmix=1.0
      localization adl14 "network.name=gap/$net" "$o.adl=$adl" $o.adl_threshold=0.8
      localization acol14 "network.name=acol/$net" loss.name=acol
      localization acol14convs "network.name=acol/$net" loss.name=acol $o.convs=2 $o.width=512
      localization acol14paper "network.name=acol/$net" loss.name=acol $o.convs=2 $o.width=512 $o.shared_gradient=true
      birds triplet embedding_lite0-cub100
      birds npair embedding_lite0-cub100-npair loss.negatives=all
    done < <(bodies)
  done
}
sweep() {
  local all=()
  for layers in '["bn2"]' '["blocks.4"]' '["blocks.4","bn2"]'; do for threshold in 0.5 0.8 0.9; do
    name=adl-$(tr -dc 'a-z0-9' <<< "$layers")-$threshold; all+=(--net "$OUT/$name/weights.safetensors")
    train "$name" wsol-cub100 "$o.adl=$layers" $o.adl_threshold=$threshold data.test=cub100:split=train,part=choose epochs=10
  done; done
  [ "$1" = train ] || measure wsol --data cub100:split=train,part=choose "${all[@]}" --method cam --json "$JSON/wsol-adl-choose.json"
}
measures() {
  local test=(--data cub100 --split test) three=(gradcam gradcam-abs l2caf-oblivious)
  while read -r body _; do
    mapfile -t found < <(nets {gap14,adl14,acol14,acol14convs,acol14paper,has14,cutmix14}_$body | tr ' ' '\n')
    measure wsol "${test[@]}" "${found[@]}" --method cam --method l2caf --json "$JSON/wsol-cub100-14-$body.json" --out "$JSON/boxes-$body.png" --page
    measure wsol "${test[@]}" "${found[@]}" --method cam --no-clip --json "$JSON/wsol-cub100-14-$body-unclipped.json"
  done < <(bodies)
  mapfile -t found < <(nets triplet_lite0 npair_lite0 triplet_res50 npair_res50 | tr ' ' '\n')
  measure retrieval-loc --data cub100:labels=0-49 "${found[@]}" "${three[@]/#/--method=}" --json "$JSON/retrieval-loc-cub100-swapped.json"
  mapfile -t found < <(nets none cnn lstm attention self self-first unranked detached patch448 prototypes read{1,3,6,10} | tr ' ' '\n')
  measure twostream "${test[@]}" "${found[@]}" --json "$JSON/twostream-cub100-table.json"
  for name in attention self self-first; do
    mapfile -t found < <(nets $name | tr ' ' '\n')
    measure finer "${test[@]}" --limit 800 "${found[@]}" --method gradcam --control untrained --json "$JSON/finer-$name-cub100.json"
  done
}
run() { xargs -P "$P" -d '\n' -I{} bash -c '{} || echo "failed: {}" >&2'; }

mkdir -p "$JSON"
case ${1:-} in
  train) first | run; second | run ;;
  measure) measures | P=${P_MEASURE:-3} run ;;
  sweep) sweep train | run; sweep measure | grep ' measure ' | run ;;
  list) first; second; measures ;;
  *) sed -n '2,13s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
