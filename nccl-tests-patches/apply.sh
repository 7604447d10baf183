#!/bin/bash
# apply.sh DIR: adds the cgx options to the nccl-tests sources in DIR (2.17 to 2.19). Changes src/common.cu by added lines
# only and adds headers beside it; all or nothing; a second run changes nothing. Fetches and checks out nothing.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
patches=(1-bound.patch 2-gradients.patch 3-wire.patch)

fail() {
  echo "apply.sh: $*" >&2
  exit 1
}

# Prints the version, or nothing. Sources before 2.17.4 do not carry it, so those are known by their content.
version_of() {
  local dir=$1 found
  found=$(sed -n 's/^#define NCCL_TESTS_VERSION "\([0-9.]*\)".*/\1/p' "$dir/src/common.h" | head -n 1)
  if [[ -z $found ]]; then
    case $(git hash-object --no-filters "$dir/src/common.cu" | cut -c 1-12) in
      f37a3d82c5f5) found=2.17.0 ;;
      8dc16cd20254) found=2.17.1 ;;
      4b8e8c06d258) found=2.17.2 ;;
      e1e91a9ebd10) found=2.17.3 ;;
    esac
  fi
  if [[ -z $found && -e $dir/.git ]]; then
    found=$(git -C "$dir" describe --tags --match 'v*' 2>/dev/null | sed 's/^v//; s/-.*//') || true
  fi
  echo "$found"
}

# relocate PATCH FILE: the patch with its line numbers made those of FILE: each hunk goes after the one line that holds the
# text that follows its second @@.
relocate() {
  awk -v patch="$1" '
    { text[NR] = $0 }
    END {
      while ((getline line < patch) > 0) {
        if (line !~ /^@@ /) { print line; continue }
        place = line; sub(/^@@ [^@]* @@ after /, "", place)
        split(line, word, /[ ,]/)
        added = word[5]
        at = 0
        for (i = 1; i <= NR; ++i)
          if (index(text[i], place)) {
            if (at) { print "line " at " and line " i " both hold: " place > "/dev/stderr"; exit 1 }
            at = i
          }
        if (!at) { print "no line holds: " place > "/dev/stderr"; exit 1 }
        if (at < last) { print "not in the order of the patch: " place > "/dev/stderr"; exit 1 }
        last = at
        printf "@@ -%d,0 +%d,%d @@ after %s\n", at, at + 1 + shift, added, place
        shift += added
      }
    }' "$2"
}

[[ $# -eq 1 ]] || { echo "usage: apply.sh DIR   (a checkout of NVIDIA/nccl-tests, 2.17 to 2.19)" >&2; exit 2; }
dir=$1
[[ -d $dir ]] || fail "$dir: no such directory"
for file in src/common.cu src/common.h src/all_reduce.cu verifiable/verifiable.h; do
  [[ -f $dir/$file ]] || fail "$dir holds no nccl-tests sources: $file is missing"
done
command -v git >/dev/null || fail "git is needed to apply patches"

if grep -q cgx_bound.h "$dir/src/common.cu"; then
  cmp -s "$here/src/cgx_bound.h" "$dir/src/cgx_bound.h" ||
    fail "$dir has these patches from another version of them; start from clean sources (git checkout src)"
  echo "$dir has these patches already; nothing changed"
  exit 0
fi

version=$(version_of "$dir")
case $version in
  2.17 | 2.17.* | 2.18 | 2.18.* | 2.19 | 2.19.*) ;;
  "") fail "cannot tell the version of $dir: no NCCL_TESTS_VERSION in src/common.h, and not 2.17.0 to 2.17.3 unchanged" ;;
  *) fail "nccl-tests $version is not known here; these patches are for 2.17 to 2.19" ;;
esac

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/src"
cp "$dir/src/common.cu" "$scratch/src/"
for patch in "${patches[@]}"; do
  relocate "$here/$patch" "$scratch/src/common.cu" >"$scratch/moved.patch" ||
    fail "$patch does not fit these sources of $version (above); nothing changed"
  # Outside of any repository, so that only the file counts.
  (cd "$scratch" && GIT_CEILING_DIRECTORIES=$(dirname "$scratch") git apply --unidiff-zero moved.patch) ||
    fail "$patch does not apply to $version; nothing changed"
done
cp "$here"/src/cgx_*.h "$dir/src/"
cp "$scratch/src/common.cu" "$dir/src/common.cu"

cat <<END
nccl-tests $version in $dir: patched.
Build it as ever:   make -C $dir MPI=1 CUDA_HOME=... NCCL_HOME=...      (MPI=0 for one process)
Then, as an example: build/all_reduce_perf -b 64K -e 256M -f 4 -E 4 -B 1 -W 1
  -E 4  judge half, float and bfloat16 sums by the error bound of 4 bits    -B 1  data like gradients    -W 1  wire column
END
