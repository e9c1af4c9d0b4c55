# Sourced by soak.sh and fault_soak.sh after lib.sh: programs, data and processes of a long run.
# shellcheck shell=bash disable=SC2034  # used by the scripts that source this

# find_programs NAME…: sets `bin` to the folder of the programs (STOKER_BIN).
find_programs() {
  local program
  bin=$(realpath "${STOKER_BIN:-$root/build/release/bin}")
  for program in "$@"; do
    [[ -x $bin/$program ]] || die "$bin/$program is missing; run scripts/build.sh release programs"
  done
}

# make_directory: creates `dir`, or a temporary directory, which `scratch` then names.
make_directory() {
  scratch=''
  if [[ -z $dir ]]; then
    scratch=$(mktemp -d)
    dir=$scratch
  else
    [[ ! -e $dir ]] || die "$dir exists already"
    mkdir -p "$dir"
  fi
  run=$dir/run
}

# write_table FILE [ROW]: 20000 rows of 8 features and one of 4 classes; ROW has a value that is not
# a number.
write_table() {
  awk -v invalid="${2:--1}" 'BEGIN {
    srand(7)
    print "a,b,c,d,e,f,g,h,kind"
    for (row = 0; row < 20000; row++) {
      line = ""
      for (i = 0; i < 8; i++) line = line sprintf("%.4f,", rand() + (i % 4 == row % 4 ? 1 : 0))
      if (row == invalid) sub(/^[^,]*/, "?", line)
      print line row % 4
    }
  }' >"$1"
}

has_ended() { ! kill -0 "$1" 2>/dev/null; }
# wait_for SECONDS COMMAND…: polls until the command succeeds.
wait_for() {
  local tries=$(($1 * 20))
  shift
  while ! "$@"; do
    ((tries-- > 0)) || return 1
    sleep 0.05
  done
}
# fail_with_log PROGRAM WHAT: exits with the end of the program's output.
fail_with_log() {
  tail -n 20 "$dir/$1.out" >&2
  die "$1 $2; the last lines of its output are above${seed:+; seed $seed, files in $dir}"
}
