#!/usr/bin/env bash
# cli_documents_test.sh BIN PROGRAM…: checks that man formats the man pages of the programs and of
# stoker.yaml without warnings, and that bash, zsh and fish complete their command lines.
set -euo pipefail
bin=${1:?give the folder of the programs}
programs=("${@:2}")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failed=0
fail() {
  printf 'cli_documents_test: %s\n' "$*" >&2
  failed=1
}

for program in "${programs[@]}"; do
  "$bin/$program" --help | awk 'length > 80 || / Excludes:/ { wrong = 1 } END { exit wrong }' || fail "--help of $program is wider than a terminal"
  "$bin/$program" --print-document man >"$scratch/$program.man"
  mkdir -p "$scratch/zsh"
  "$bin/$program" --print-document bash >"$scratch/$program.bash"
  "$bin/$program" --print-document zsh >"$scratch/zsh/_$program"
  "$bin/$program" --print-document fish >"$scratch/$program.fish"
  ! command -v shellcheck >/dev/null || shellcheck -s bash "$scratch/$program.bash" || fail "shellcheck rejects the completion of $program"
done
"$bin/stoker-config-reference" man >"$scratch/stoker.yaml.man"

# expect TYPED ARGUMENTS…: the arguments of $program when this is typed into an interactive bash, with
# \t for the TAB key.
# "\e*" inserts all completions.
expect() {
  local typed=$1 arguments
  shift
  # shellcheck disable=SC2016
  printf 'PS1=; PATH=%q:$PATH; %s() { printf "<%%s>" "$@" >"%s"; }\nsource "%s"\n' "$(readlink -f "$bin")" "$program" "$scratch/typed" "$scratch/$program.bash" >"$scratch/rc"
  rm -f "$scratch/typed"
  # From a pipe, bash reads with readline as from a terminal.
  printf '%b\nexit\n' "$typed" |
    (cd "$scratch" && HISTFILE='' INPUTRC=/dev/null TERM=dumb timeout 60 bash --noprofile --rcfile rc -i) >"$scratch/screen" 2>&1 || true
  arguments=$(cat "$scratch/typed" 2>/dev/null) || arguments=nothing
  [[ $arguments == "$(printf '<%s>' "$@")" ]] || fail "'$typed' became $arguments, not $(printf '<%s>' "$@"); $(tail -n 5 "$scratch/screen")"
}

# The same for zsh, on a pseudoterminal.
cat >"$scratch/type.zsh" <<'ZSH'
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "PS1=; unsetopt beep; fpath=($PWD/zsh \$fpath); autoload -U compinit; compinit -u -D
$1() { printf '<%s>' \"\$@\" >typed.new; mv typed.new typed }; : >ready"
integer left=1200 is_typed=0
until [[ -e typed ]]; do
  ((left-- > 0)) || exit 1
  zpty -r -t shell output
  if ((!is_typed)) && [[ -e ready ]]; then
    zpty -w shell "$(printf '%b' "$2")"
    is_typed=1
  fi
  sleep 0.05
done
ZSH
expect_zsh() {
  local typed=$1 arguments
  shift
  command -v zsh >/dev/null || return 0
  rm -f "$scratch/typed" "$scratch/ready"
  (cd "$scratch" && TERM=dumb zsh -f type.zsh "$program" "$typed") || true
  arguments=$(cat "$scratch/typed" 2>/dev/null) || arguments=nothing
  [[ $arguments == "$(printf '<%s>' "$@")" ]] || fail "zsh: '$typed' became $arguments, not $(printf '<%s>' "$@")"
}
# expect_fish LINE CANDIDATES…: what fish offers at the end of LINE.
expect_fish() {
  local line=$1 candidates
  shift
  command -v fish >/dev/null || return 0
  candidates=$(cd "$scratch" && fish --no-config -c "source $program.fish; complete -C '$line'" | cut -f 1 | paste -s -d ' ')
  [[ $candidates == "$*" ]] || fail "fish: '$line' offers $candidates, not $*"
}

mkdir "$scratch/runs"
# A run, whose steps and metrics stokerctl itself lists.
mkdir -p "$scratch/runs/a/checkpoints/step-000001200" "$scratch/runs/a/metrics"
printf '{"step":1200,"files":[]}' >"$scratch/runs/a/checkpoints/step-000001200/manifest.json"
printf 'data:\n  train: {format: synthetic, num_samples: 9, input_shape: [2], num_classes: 2}\nmodel: {name: mlp, hidden_sizes: [2]}\ntask: {name: classification}\n' >"$scratch/runs/a/config.yaml"
: >"$scratch/my.yaml"
for program in "${programs[@]}"; do
  case $program in
    stokerctl)
      expect 'stokerctl sho\t1200' show-batch 1200
      expect 'stokerctl --run-dir ru\t ex\tbest --form\tto\t' --run-dir runs/ export best --format torch
      expect "stokerctl --run-dir list rep\\t" --run-dir list report
      expect 'stokerctl export --format=sa\t' export --format=safetensors
      expect_zsh 'stokerctl sho\t1200' show-batch 1200
      expect_zsh 'stokerctl --run-dir ru\t ex\tbest --form\tto\t' --run-dir runs export best --format=torch
      expect_fish 'stokerctl sho' show-batch
      expect_fish 'stokerctl --run-dir runs export --format ' dcp huggingface peft safetensors timm torch
      expect 'stokerctl --run-dir runs/a verify 12\t' --run-dir runs/a verify 1200
      expect 'stokerctl --run-dir runs/a set optimizer.l\t1e-4' --run-dir runs/a set optimizer.lr 1e-4
      expect 'stokerctl logs --\e*' logs --all --evaluator --follow --help --json --lines --rank --run-dir --socket --version
      ;;
    stoker-web)
      expect 'stoker-web --lis\t127.0.0.1:0' --listen 127.0.0.1:0
      ;;
    *)
      expect "$program --con\\tmy\\t--set train.max_st\\t10" --config my.yaml --set train.max_steps=10
      expect "$program --set train.preci\\tbf\\t" --set train.precision=bf16
      expect "$program --set=log.level=war\\t" --set=log.level=warning
      expect "$program --set data.train.cache.\\e*" --set data.train.cache.{dir,jpeg_restart_markers,type}=
      expect_zsh "$program --con\\tmy\\t --set train.max_st\\t10" --config=my.yaml --set train.max_steps=10
      expect_zsh "$program --set train.preci\\tbf\\t" --set train.precision=bf16
      expect_fish "$program --set log.level=war" log.level=warning
      expect_fish "$program --config m" my.yaml
      # Without '=' as a word break.
      expect "COMP_WORDBREAKS=\${COMP_WORDBREAKS//=}\\n$program --set train.precision=bf\\t" --set train.precision=bf16
      ;;
  esac
done

if ! command -v man >/dev/null || ! man --version >/dev/null 2>&1; then
  ((failed == 0)) || exit 1
  printf 'man is not installed: only the completion was tested\n'
  exit 77
fi
for page in "$scratch"/*.man; do
  warnings=$(LC_ALL=C.UTF-8 MANROFFSEQ='' MANWIDTH=80 man --warnings -E UTF-8 -l -Tutf8 -Z "$page" 2>&1 >/dev/null) ||
    fail "man cannot format $(basename "$page")"
  [[ -z $warnings ]] || fail "$(basename "$page"): $warnings"
done
exit "$failed"
