#!/usr/bin/env bash
# prometheus_test.sh BIN PROMETHEUS RULES: a run with http.listen, whose metrics Debian's promtool
# checks and its Prometheus scrapes with RULES. BIN: the folder of stokerd. PROMETHEUS: the unpacked
# package. Skipped without it.
set -euo pipefail
bin=${1:?give the folder of the programs}
prometheus=${2:?give the folder of the unpacked package}
rules=$(readlink -f "${3:?give the file of the rules}")
if [[ ! -x $prometheus/usr/bin/promtool ]]; then
  printf 'SKIP: no Prometheus in %s; scripts/deps.sh --service unpacks it\n' "$prometheus"
  exit 77
fi
promtool=$prometheus/usr/bin/promtool

work=$(mktemp -d)
pids=()
clean_up() {
  local pid
  for pid in "${pids[@]}"; do
    kill "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
  done
  rm -rf "$work"
}
trap clean_up EXIT
fail() {
  printf 'prometheus_test: %s\n' "$*" >&2
  tail -n 20 "$work"/*.log >&2
  exit 1
}
# shellcheck source=tests/support/within.sh
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../support/within.sh"

cat >"$work/config.yaml" <<'YAML'
data:
  train: {format: synthetic, num_samples: 5000, input_shape: [32], num_classes: 4, noise_std: 0.5}
feed: {num_workers: 1}
model: {name: mlp, hidden_sizes: [32]}
task: {name: classification}
train: {max_steps: 100000000, micro_batch_size: 16, device: cpu, num_threads: 1}
checkpoint: {save_every_steps: 1000, keep_last: 2}
metrics: {log_every_steps: 100, tensorboard: false}
http: {listen: "127.0.0.1:0"}
log: {format: json}
YAML
"$bin/stokerd" --config "$work/config.yaml" --run-dir "$work/run" >"$work/stokerd.log" 2>&1 &
pids+=($!)
address() { sed -n 's/.*"event":"http listening","address":"\([^"]*\)".*/\1/p' "$work/run/logs/stokerd.log" 2>/dev/null; }
has_address() { [[ -n $(address) ]]; }
within "the HTTP server" has_address
target=$(address)

# scrape PATH: the body of the answer.
scrape() {
  exec 3<>"/dev/tcp/${target%:*}/${target##*:}"
  printf 'GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' "$1" >&3
  sed '1,/^\r$/d' <&3
  exec 3>&-
}
trains() { scrape /metrics | grep -qE '^stoker_step [1-9]' && [[ $(scrape /readyz) == training ]]; }
within "training" trains
scrape /metrics >"$work/metrics"
"$promtool" check metrics <"$work/metrics" >"$work/promtool.log" 2>&1 || fail "promtool check metrics: $(cat "$work/promtool.log")"
[[ ! -s $work/promtool.log ]] || fail "promtool: $(cat "$work/promtool.log")"

"$promtool" check rules --lint-fatal "$rules" >"$work/promtool.log" 2>&1 || fail "promtool check rules: $(cat "$work/promtool.log")"
sed "s|RULES|$rules|" "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/prometheus_rules_test.yml" >"$work/rules_test.yml"
"$promtool" test rules "$work/rules_test.yml" >"$work/promtool.log" 2>&1 || fail "promtool test rules: $(cat "$work/promtool.log")"
# Each metric of a rule exists.
while read -r metric; do
  grep -q "^${metric}[ {]" "$work/metrics" || fail "${rules##*/}: no metric $metric"
done < <(grep -oE '\bstoker_[a-z_]+' "$rules" | sort -u)
cat >"$work/prometheus.yml" <<YAML
global: {scrape_interval: 200ms, scrape_timeout: 200ms}
rule_files: ["$rules"]
scrape_configs: [{job_name: stoker, static_configs: [{targets: ["$target"]}]}]
YAML
# A free port; another program can take it before Prometheus does, which is then tried again.
for _ in 1 2 3; do
  port=$((20000 + RANDOM % 10000))
  "$prometheus/usr/bin/prometheus" --config.file="$work/prometheus.yml" --storage.tsdb.path="$work/tsdb" \
    --web.listen-address="127.0.0.1:$port" >"$work/prometheus.log" 2>&1 &
  server=$!
  pids+=("$server")
  is_ready() { ! kill -0 "$server" 2>/dev/null || grep -q 'Server is ready' "$work/prometheus.log"; }
  within "the start of Prometheus" is_ready
  if kill -0 "$server" 2>/dev/null; then break; fi
done
query() { "$promtool" query instant "http://127.0.0.1:$port" "$1" 2>/dev/null; }
has_series() { query "$1" | grep -q '=>'; }
within "a scrape" has_series 'up{job="stoker"} == 1'
within "an increasing step" has_series 'delta(stoker_step[5s]) > 0'
within "the state" has_series 'stoker_state{state="training"} == 1'
printf 'scraped %s: %s series; %s\n' "$target" "$(grep -vc '^#' "$work/metrics")" "$(query stoker_step)"
