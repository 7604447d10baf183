#!/bin/bash
# real_nccl.sh [--dry-run] [--library FILE] [--python PROGRAM] [--keep FOLDER]
# The plugin under real NCCL on a machine with one GPU, PyTorch and NCCL >= 2.28, in at most 8 minutes: builds it (unless
# --library names one), all-reduces real gradients with 2 and with 4 ranks that share the GPU, trains with and without it,
# and ends with one summary line. A different NCCL_HOSTID makes each rank a node of its own, so NCCL uses its network.
set -uo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source_dir=$(cd "$here/../.." && pwd)
gradients=$source_dir/test/data/gradients/transformer/step0400
python=python3
library=
keep=
dry=0
started=$SECONDS
budget=460  # seconds for all: 8 minutes, less what ending takes

usage() {
  echo "usage: real_nccl.sh [--dry-run] [--library FILE] [--python PROGRAM] [--keep FOLDER]" >&2
  exit 2
}
while [[ $# -gt 0 ]]; do
  case $1 in
    --dry-run) dry=1 ;;
    --library | --python | --keep)
      [[ $# -ge 2 ]] || usage
      printf -v "${1#--}" '%s' "$2"
      shift
      ;;
    *) usage ;;
  esac
  shift
done

left() { echo $((budget - SECONDS + started)); }
fail() {
  echo "real_nccl: FAIL: $*"
  exit 1
}

# What this machine lacks, one a line.
missing() {
  command -v "$python" >/dev/null || { echo "$python"; return; }
  [[ -f $gradients/rank3.npy ]] || echo "$gradients/rank3.npy"
  if [[ -n $library ]]; then
    [[ -f $library ]] || echo "$library"
  else
    command -v cmake >/dev/null || echo "cmake (or --library)"
    command -v ninja >/dev/null || echo "ninja (or --library)"
  fi
  nvidia-smi -L >/dev/null 2>&1 || echo "a GPU (nvidia-smi -L fails)"
  "$python" - <<'END' 2>/dev/null || echo "PyTorch with CUDA and NCCL 2.28 or newer for $python"
import sys, torch
sys.exit(not (torch.cuda.is_available() and torch.cuda.nccl.version() >= (2, 28)))
END
}

# environment RANK RANKS PORT FOLDER: what each rank is started with, NAME=value a line.
environment() {
  cat <<END
RANK=$1
LOCAL_RANK=0
WORLD_SIZE=$2
LOCAL_WORLD_SIZE=1
MASTER_ADDR=127.0.0.1
MASTER_PORT=$3
NCCL_HOSTID=cgx-rank-$1
NCCL_SOCKET_IFNAME=lo
NCCL_DEBUG=INFO
NCCL_DEBUG_SUBSYS=INIT,NET,COLL
NCCL_DEBUG_FILE=$4/nccl.$1
END
}
with_plugin() {
  cat <<END
NCCL_NET_PLUGIN=$library
NCCL_COLLNET_ENABLE=1
NCCL_NET_PLUGIN_REF_COUNT=1
CGX_MODE=always
END
}

without_plugin() { echo NCCL_NET_PLUGIN=none; }  # not even one of the default name

# launch NAME RANKS SECONDS with|without PROGRAM ARGUMENT...: one process a rank; "OUT" stands for the rank's result file.
launch() {
  local name=$1 ranks=$2 limit=$3 plugin=$4
  shift 4
  local folder=$keep/$name port=$((20000 + RANDOM % 20000)) rank pids=() status=0
  local -a variables words
  for ((rank = 0; rank < ranks; ++rank)); do
    mapfile -t variables < <(environment "$rank" "$ranks" "$port" "$folder"; "${plugin}_plugin")
    words=("${@/#OUT/$folder/rank$rank.json}")
    if ((dry)); then
      ((rank > 0)) || printf '%s, first of %d ranks, at most %d s:\n  %s\n  %s\n' "$name" "$ranks" "$limit" "${variables[*]}" "$python ${words[*]}"
      continue
    fi
    mkdir -p "$folder"
    # A user's own NCCL_* and CGX_* settings must not decide the outcome.
    env $(env | sed -n 's/^\(NCCL_[A-Z0-9_]*\|CGX_[A-Z0-9_]*\)=.*/-u \1/p') "${variables[@]}" \
      timeout --kill-after=5 "$limit" "$python" "${words[@]}" >"$folder/out.$rank" 2>&1 &
    pids+=($!)
  done
  for pid in ${pids[@]+"${pids[@]}"}; do wait "$pid" || status=$?; done
  ((status == 0)) || { echo "$name: a rank ended with $status; its last lines:"; tail -n 5 "$folder"/out.*; }
  return 0  # the verdict says what that means
}

# at_most SECONDS: these, or what is left of the budget; at least one.
at_most() {
  local rest
  rest=$(left)
  echo $((rest < 1 ? 1 : rest < $1 ? rest : $1))
}

lacks=$(missing)
if ((dry)); then
  : "${library:=$source_dir/build/release/libnccl-net-cgx.so}"
  : "${keep:=FOLDER}"
  echo "would build $library in at most 240 s: cmake --preset release && cmake --build --preset release --target nccl-net-cgx"
  for program in all_reduce train verdict; do
    "$python" -c 'import sys; compile(open(sys.argv[1]).read(), sys.argv[1], "exec")' "$here/$program.py" || fail "$program.py does not compile"
  done
else
  [[ -z $lacks ]] || fail "missing here: ${lacks//$'\n'/, }"
  [[ -n $keep ]] || { keep=$(mktemp -d); trap 'rm -rf "$keep"' EXIT; }
  mkdir -p "$keep" && keep=$(cd "$keep" && pwd) || fail "cannot write to $keep"
  if [[ -z $library ]]; then
    library=$source_dir/build/release/libnccl-net-cgx.so
    (cd "$source_dir" && mkdir -p build && cmake --preset release -DCGX_TESTS=OFF &&
      timeout "$(at_most 240)" cmake --build --preset release --target nccl-net-cgx) >"$keep/build.log" 2>&1 ||
      { tail -n 20 "$keep/build.log"; fail "the build failed or took more than 240 s"; }
  fi
  library=$(realpath "$library")
fi

launch reduce2 2 "$(at_most 70)" with "$here/all_reduce.py" "$gradients" OUT
launch reduce4 4 "$(at_most 90)" with "$here/all_reduce.py" "$gradients" OUT
launch train_with 2 "$(at_most 90)" with "$here/train.py" OUT
launch train_without 2 "$(at_most 90)" without "$here/train.py" OUT

if ((dry)); then
  lacks=${lacks:-nothing}
  echo "real_nccl: dry run; missing here: ${lacks//$'\n'/, }"
  exit 0
fi
"$python" "$here/verdict.py" "$keep"
