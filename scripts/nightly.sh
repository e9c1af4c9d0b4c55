#!/usr/bin/env bash
# Runs what takes too long for each change.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$root"

# name|folders whose product code it tests|what it is
parts=(
  'tests|daemon shared evaluator feeder systemd packaging|all tests of the tier nightly: dry runs of CUDA, the interpreter of PTX, Slurm, the container image, soaks'
  'seeds|daemon shared evaluator feeder ctl|the tests of scripts/test.sh with a new seed and in a new order'
  'asan|shared daemon ctl feeder evaluator include|all tests without LibTorch under AddressSanitizer and UBSan'
  'tsan|shared daemon ctl feeder evaluator include|all tests without LibTorch, and the training loop, under ThreadSanitizer'
  'faults|daemon shared evaluator feeder|scripts/fault_tests.sh: every fault point, kills, power cuts, schedules, hostile neighbors'
  'parity|shared/model shared/task shared/pretrained daemon/train evaluator|the comparisons with Python libraries, with 50 configurations of each kind'
  'reference|shared/data shared/model shared/task shared/eval_metrics daemon/train evaluator|5,000 random configurations, compared with the reference trainer'
  'fuzz|shared feeder include|scripts/fuzz.sh: a minute per format'
  'cost|shared feeder include|scripts/fuzz.sh --cost: a minute per parser'
  'soak|daemon shared evaluator feeder ctl|scripts/soak.sh: memory over an hour'
  'fault_soak|daemon shared evaluator feeder ctl|scripts/fault_soak.sh: an hour of faults with a new seed, compared byte for byte'
  'figures|daemon shared evaluator bench|bench/check_figures.py: the benchmarks behind the figures of README.md, on an idle machine'
  'mutants|daemon shared evaluator feeder ctl include systemd|scripts/mutants.sh: harmful changes of the product, each of which a test must notice'
)
state=$root/build/nightly
page=$root/docs/nightly.md
progress=tests/reference/progress.json
most_commits=150

usage() {
  cat <<HELP
Usage: scripts/nightly.sh [--status | --record | --again] [PART…]

Runs what takes too long for each change, part by part (default: all). A part that has passed on this commit is not run again,
so that an interrupted call can be repeated. Prints a line with the duration of each part; the output is in
build/logs/nightly-PART.log. Continues after a part that fails, and then ends with exit code 1. What the parts mutants and
reference have done is in tests/mutants/results.tsv and tests/reference/progress.json: committed, it is continued elsewhere.

  --status  print the commit and the day of each part's last complete run, as recorded in docs/nightly.md, and warn of parts
            of whose folders the product code has changed in more than $most_commits commits since
  --record  write the parts that have passed on this machine into docs/nightly.md, to be committed
  --again   run parts although they have passed on this commit

HELP
  local part name what
  for part in "${parts[@]}"; do
    IFS='|' read -r name _ what <<<"$part"
    printf '  %-11s %s\n' "$name" "$what"
  done
}

run_part() {
  local seed=$((RANDOM * 32768 + RANDOM + 1))
  case $1 in
    tests)
      ((EUID == 0)) || die "most of these tests need root"
      scripts/deps.sh --tests --cuda-link --nvcc --python --peers --tensorflow --service --launchers --package --check
      scripts/build.sh release all nightly_tests
      run_tests release -L nightly
      report_tests --all build/release/test-results
      ;;
    seeds)
      echo "STOKER_TEST_SEED=$seed"
      scripts/build.sh release quick_tests
      STOKER_TEST_SEED=$seed GTEST_RANDOM_SEED=$((seed % 99999 + 1)) run_tests release -L quick
      report_tests build/release/test-results
      ;;
    asan | tsan)
      scripts/deps.sh --tests
      trap 'cmake --preset "$1" -DSTOKER_SANITIZE_ALL=OFF' EXIT
      cmake --preset "$1" -DSTOKER_SANITIZE_ALL=ON
      scripts/build.sh "$1" all nightly_tests
      run_tests "$1" -LE project
      report_tests --all "build/$1/test-results"
      if [[ $1 == tsan ]]; then
        scripts/build.sh tsan-torch training_loop_test device_schedule_test
        run_tests tsan-torch
        report_tests --all build/tsan-torch/test-results
      fi
      ;;
    faults) scripts/fault_tests.sh ;;
    parity)
      scripts/deps.sh --tests --python --peers --tensorflow
      scripts/build.sh release
      STOKER_PARITY=all STOKER_PARITY_COUNT=50 run_tests release -L parity
      report_tests --all build/release/test-results
      ;;
    reference)
      scripts/deps.sh --python
      scripts/build.sh release programs
      # An interrupted part continues with the configuration after the last one that has finished, also on another machine.
      "${STOKER_PYTHON:-$root/.deps/venv/bin/python}" tests/reference/compare.py build/release/bin --seed "$seed" --count 5000 \
        --state "$progress" --output build/nightly/reference
      rm "$progress"
      ;;
    fuzz) scripts/fuzz.sh 60 ;;
    cost)
      scripts/deps.sh --tests
      scripts/fuzz.sh --cost 60
      ;;
    soak) scripts/soak.sh ;;
    fault_soak) scripts/fault_soak.sh --seed "$seed" ;;
    figures)
      scripts/deps.sh --tests --python
      scripts/build.sh release
      bench/check_figures.py
      ;;
    mutants) scripts/mutants.sh ;;
  esac
}

# row_of NAME: the row of the page: | NAME | commit | day | duration |
row_of() { grep -E "^\| $1 +\|" "$page" | head -n 1; }
field_of() { row_of "$1" | cut -d '|' -f "$(($2 + 1))" | tr -d ' '; }

print_status() {
  local part name folders commit day count
  for part in "${parts[@]}"; do
    IFS='|' read -r name folders _ <<<"$part"
    commit=$(field_of "$name" 2)
    day=$(field_of "$name" 3)
    if [[ -z $commit || $commit == never ]]; then
      printf 'nightly %-11s never run completely: scripts/nightly.sh %s\n' "$name" "$name"
      continue
    fi
    # shellcheck disable=SC2086  # several folders
    if ! count=$(git rev-list --count "$commit..HEAD" -- $folders 2>/dev/null); then
      printf 'nightly %-11s last run on %s at %s, which is no commit of this history\n' "$name" "$day" "$commit"
    elif ((count > most_commits)); then
      printf 'nightly %-11s last run on %s at %s, %d commits to its folders ago: run scripts/nightly.sh %s\n' "$name" "$day" "$commit" "$count" "$name"
    else
      printf 'nightly %-11s last run on %s at %s, %d commits to its folders ago\n' "$name" "$day" "$commit" "$count"
    fi
  done
}

# state/NAME: commit, day and seconds of the last complete run.
record() {
  local part name commit day seconds
  for part in "${parts[@]}"; do
    IFS='|' read -r name _ <<<"$part"
    [[ -e $state/$name ]] || continue
    read -r commit day seconds <"$state/$name"
    sed -i -E "s/^\| $name +\|.*/| $name | $commit | $day | $((seconds / 60)) min |/" "$page"
  done
}

again=no
case ${1:-} in
  -h | --help) usage && exit 0 ;;
  --part) run_part "$2" && exit 0 ;;  # of the call below, in a process of its own: there, set -e has an effect
  --status) print_status && exit 0 ;;
  --record) record && exit 0 ;;
  --again)
    again=yes
    shift
    ;;
esac
names=("$@")
if ((${#names[@]} == 0)); then
  for part in "${parts[@]}"; do names+=("${part%%|*}"); done
fi
for name in "${names[@]}"; do
  printf '%s\n' "${parts[@]}" | grep -q "^$name|" || die "unknown part $name; see --help"
done
# Results of mutants and configurations do not change what is tested, and are written by parts that are continued.
git diff --quiet HEAD -- . ':!tests/mutants/results.tsv' ":!$progress" || die "there are uncommitted changes; a part is recorded with its commit"
commit=$(git rev-parse --short=8 HEAD)
mkdir -p "$state"
failed=0
for name in "${names[@]}"; do
  if [[ $again == no && $(cut -d ' ' -f 1 "$state/$name" 2>/dev/null) == "$commit" ]]; then
    say "$name: has passed on $commit"
    continue
  fi
  began=$(date +%s)
  if (step "Nightly: $name" "nightly-$name" "$root/scripts/nightly.sh" --part "$name"); then
    echo "$commit $(date -u +%F) $(($(date +%s) - began))" >"$state/$name"
  else
    failed=$((failed + 1))
  fi
done
((failed == 0))
