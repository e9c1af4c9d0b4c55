#!/usr/bin/env bash
# service_steps.sh RESULTS: runs in the container of service_test.sh. Starts, reloads, kills, hangs
# and stops stokerd@demo while stoker-eval@demo is running, stopped and started again; kills another
# run until systemd gives up; trains an exported module. Creates RESULTS/passed if every step
# succeeded.
set -euo pipefail
results=${1:?give the folder of the results}
readonly unit=stokerd@demo.service eval_unit=stoker-eval@demo.service denied=stokerd@denied.service
readonly crashing=stokerd@crashing.service diverging=stokerd@diverging.service
readonly exported=stokerd@exported.service exported_eval=stoker-eval@exported.service
run=/var/lib/stoker/demo
readonly log=$run/logs/stokerd.log

source "$(dirname "${BASH_SOURCE[0]}")/steps.sh"
save_logs_at_exit "$results" "$unit" "$eval_unit" "$denied" "$crashing" "$diverging" "$exported" "$exported_eval"
logs() { grep -q "$@" "$log" 2>/dev/null; }
shows_progress() { [[ $(property "$1" StatusText) =~ step\ [1-9] ]]; }
has_restarts() { [[ $(property "$unit" NRestarts) == "$1" ]] && has_state "$unit" active; }
# has_resumed TIMES STEP: stokerd has resumed TIMES times, the last time from a checkpoint at STEP
# or later, and is training.
has_resumed() {
  local steps
  mapfile -t steps < <(sed -n 's/.* run resumed step=\([0-9]*\) .*/\1/p' "$log")
  ((${#steps[@]} == $1 && steps[-1] >= $2)) && has_step_after "${steps[-1]}"
}
# PID of the first worker process of PARENT.
find_worker() {
  local status
  for status in /proc/[0-9]*/status; do
    if grep -qs '^Name:[[:space:]]*stoker-feed$' "$status" && grep -qs "^PPid:[[:space:]]*$1\$" "$status"; then
      basename "$(dirname "$status")" && return
    fi
  done
  return 1
}
num_filters() { sed -n 's/^Seccomp_filters:[[:space:]]*//p' "/proc/$1/status"; }

write_config() {
  cat >"$1" <<'YAML'
data:
  train: {format: synthetic, num_samples: 5000, input_shape: [32], num_classes: 4, noise_std: 0.5}
  val: {format: synthetic, num_samples: 256, input_shape: [32], num_classes: 4, noise_std: 0.5}
feed: {num_workers: 2, prefetch_batches: 4}
model: {name: mlp, hidden_sizes: [32]}
task: {name: classification}
train: {max_steps: 100000000, micro_batch_size: 16, device: cpu, num_threads: 1}
checkpoint: {save_every_steps: 1000, keep_last: 3}
metrics: {log_every_steps: 100, tensorboard: false}
YAML
}

say "$(systemctl --version | head -n 1)"
id stoker >/dev/null || fail "systemd-sysusers has not made the user stoker"
mkdir -p /etc/stoker
write_config /etc/stoker/demo.yaml
write_config /etc/stoker/denied.yaml
# A secret that only root can read, as the unit passes it on to the programs of events.
install -m 600 /dev/stdin /etc/stoker/webhook-url <<<'https://chat.example.org/secret'
cat >>/etc/stoker/demo.yaml <<'YAML'
run:
  on_event_command:
    - events: "daemon started"
      command: [sh, -c, 'cat "$CREDENTIALS_DIRECTORY/webhook-url" >"$0"', /var/lib/stoker/demo/credential]
YAML

systemctl --quiet enable "$unit" "$eval_unit" || fail "systemctl enable"
systemctl start "$unit" || fail "systemctl start: $(property "$unit" Result), $(property "$unit" ExecMainStatus)"
has_state "$unit" active || fail "start: $(property "$unit" ActiveState)"
within 30 "a status text with a step" shows_progress "$unit"
within 30 "the first checkpoint" has_step_after 0
say "started: $(property "$unit" StatusText)"

within 30 "the secret in a program of an event" grep -qx 'https://chat.example.org/secret' "$run/credential"
say "LoadCredential: a program of run.on_event_command has read it"

# Events are entries of the journal with their fields.
saved_events() { journalctl --no-pager -u "$unit" STOKER_EVENT='checkpoint saved' -o json; }
saves_to_journal() { saved_events | grep '"STOKER_STEP":"1000"' | grep '"PRIORITY":"6"' | grep -q '"MESSAGE":"checkpoint saved step=1000 '; }
within 10 "a journal entry of the first checkpoint" saves_to_journal
say "journal: $(saved_events | grep -o '"STOKER_[A-Z_]*"' | sort -u | tr -d '"' | paste -sd ' ')"

# Workers have their own seccomp filter in addition to that of the unit.
main=$(property "$unit" MainPID)
worker=$(find_worker "$main") || fail "there is no worker process"
(($(num_filters "$worker") > $(num_filters "$main"))) || fail "a worker process has no seccomp filter"
[[ $(stat -c %U "/proc/$main") == stoker ]] || fail "stokerd runs as $(stat -c %U "/proc/$main")"
say "seccomp filters: stokerd $(num_filters "$main"), its worker $(num_filters "$worker")"

# The enabled evaluator has started together with stokerd.
within 30 "an evaluation" test -s "$run/eval/best.json"
has_state "$eval_unit" active || fail "stoker-eval: $(property "$eval_unit" ActiveState)"
say "evaluated: $(find "$run/eval" -name 'step-*.json' -printf '%f\n' | sort | tail -n 1)"

printf 'log: {level: debug}\n' >>/etc/stoker/demo.yaml
systemctl reload "$unit" || fail "systemctl reload"
within 10 "the reload" logs ' configuration reloaded log.level=debug'
[[ $(property "$unit" MainPID) == "$main" ]] || fail "reload: another process"
within 10 "the end of the reload" has_state "$unit" active
say "reloaded"

# The evaluator stops and starts while stokerd trains, and evaluates what was saved meanwhile.
systemctl stop "$eval_unit" || fail "systemctl stop $eval_unit"
[[ $(property "$eval_unit" Result) == success ]] || fail "stop of stoker-eval: $(property "$eval_unit" Result)"
saved=$(newest_step)
within 30 "a checkpoint without the evaluator" has_step_after "$saved"
systemctl start "$eval_unit" || fail "systemctl start $eval_unit"
is_evaluated_after() { (($(find "$run/eval" -name 'step-*.json' -printf '%f\n' | sort | tail -n 1 | tr -dc '0-9' | sed 's/^0*//') > $1)); }
within 30 "an evaluation after the restart of stoker-eval" is_evaluated_after "$saved"
[[ $(property "$unit" MainPID) == "$main" && $(property "$unit" NRestarts) == 0 ]] || fail "stokerd was restarted with stoker-eval"
say "stoker-eval stopped and started again next to stokerd"

# The device rules of a running service are kept, and so is its process.
saved=$(newest_step)
systemctl daemon-reload || fail "systemctl daemon-reload"
within 30 "training after daemon-reload" has_step_after "$saved"
[[ $(property "$unit" MainPID) == "$main" && $(property "$unit" NRestarts) == 0 ]] || fail "daemon-reload has restarted stokerd"
say "systemctl daemon-reload: continues to train"

saved=$(newest_step)
kill -KILL "$main"
within 30 "the restart after kill -9" has_restarts 1
within 30 "training from step $saved" has_resumed 1 "$saved"
say "restarted after kill -9: resumed from a checkpoint at or after step $saved"

saved=$(newest_step)
kill -STOP "$(property "$unit" MainPID)"
within 40 "the end by the watchdog" has_restarts 2
journalctl --no-pager -u "$unit" | grep -q 'Watchdog timeout' || fail "restarted, but not by the watchdog"
within 30 "training from step $saved" has_resumed 2 "$saved"
say "restarted by the watchdog after SIGSTOP: resumed from a checkpoint at or after step $saved"

# A journal that is not read: entries fill its socket until a program that writes one waits. Training
# continues, saves and stops, and so does the evaluator.
journald=$(property systemd-journald.service MainPID)
writes_to_journal() { timeout 1 logger --journald <<<"MESSAGE=filler"; }
kill -STOP "$journald"
trap 'kill -CONT "$journald"; save_logs' EXIT
for ((entries = 0; entries < 5000; entries++)); do writes_to_journal || break; done
((entries < 5000)) || fail "the journal accepts entries while journald is stopped"
saved=$(newest_step)
within 30 "a checkpoint after $entries entries that are not read" has_step_after $((saved + 1000))

systemctl stop "$unit" || fail "systemctl stop"
grep -q '^State:.*stopped' "/proc/$journald/status" || fail "journald was continued"
[[ $(property "$unit" Result) == success && $(property "$unit" ExecMainStatus) == 0 ]] ||
  fail "stop: $(property "$unit" Result), $(property "$unit" ExecMainStatus)"
grep -q '"state":"stopped"' "$run/exit_status.json" || fail "exit_status.json: $(cat "$run/exit_status.json")"
end=$(sed 's/.*"step":\([0-9]*\).*/\1/' "$run/exit_status.json")
[[ $(newest_step) == "$end" ]] || fail "stopped at step $end, and saved step $(newest_step)"
/usr/local/bin/stokerctl --run-dir "$run" verify >/dev/null || fail "stokerctl verify"
say "stopped: saved step $end"
within 30 "the end of stoker-eval" has_state "$eval_unit" inactive
[[ $(property "$eval_unit" Result) == success ]] || fail "stoker-eval: $(property "$eval_unit" Result)"
[[ -s $(printf '%s/eval/step-%09d.json' "$run" "$end") ]] || fail "the last checkpoint is not evaluated"
say "stoker-eval has evaluated step $end and ended"
kill -CONT "$journald"
trap save_logs EXIT
within 10 "the journal" writes_to_journal
say "journal that is not read: trained, saved and stopped"

# Killed four times in a row before it has saved: systemd starts it again each time, and the fifth
# start ends with 93 because four starts have saved nothing.
write_config /etc/stoker/crashing.yaml
sed -i 's/save_every_steps: 1000/save_every_steps: 100000000/' /etc/stoker/crashing.yaml
run=/var/lib/stoker/crashing
has_new_process() { [[ $(property "$crashing" MainPID) != "$1" ]] && { has_state "$crashing" active || has_state "$crashing" failed; }; }
systemctl start "$crashing" || fail "systemctl start $crashing"
for ((kills = 1; kills <= 5; kills++)); do
  killed=$(property "$crashing" MainPID)
  ((killed > 0)) || break
  kill -KILL "$killed"
  within 30 "the start after crash $kills" has_new_process "$killed"
  if has_state "$crashing" failed; then break; fi
done
within 30 "the end after crashes in a row" has_state "$crashing" failed
[[ $(property "$crashing" ExecMainStatus) == 93 ]] || fail "crashes in a row: exit code $(property "$crashing" ExecMainStatus)"
((kills == 4)) || fail "$kills crashes in a row, not 4"
# systemd would start it a fifth time, up to its own limit of starts.
is_not_restarted() { [[ $(property "$1" Result) == exit-code && $(property "$1" NRestarts) == "$2" ]]; }
is_not_restarted "$crashing" 4 || fail "93: $(property "$crashing" Result), $(property "$crashing" NRestarts) restarts"
[[ -z $(newest_step) ]] || fail "the run of crashes has a checkpoint"
# By hand it starts again, and trains.
systemctl reset-failed "$crashing"
systemctl start "$crashing" || fail "start after crashes: $(property "$crashing" ExecMainStatus)"
within 30 "training after the crashes" shows_progress "$crashing"
systemctl stop "$crashing" || fail "stop after crashes"
within 10 "a checkpoint after the crashes" has_step_after 0
say "crashes in a row: exit code 93 after 4, started by hand again"
run=/var/lib/stoker/demo

# A loss that is not finite would be so again.
write_config /etc/stoker/diverging.yaml
sed -i 's/num_classes: 4/num_targets: 2/; s/name: classification/name: regression/; s/max_steps/max_grad_norm: null, max_steps/' /etc/stoker/diverging.yaml
printf 'optimizer: {name: sgd, lr: 1000}\n' >>/etc/stoker/diverging.yaml
systemctl start "$diverging" 2>/dev/null || true
within 30 "the end of a run that diverges" has_state "$diverging" failed
[[ $(property "$diverging" ExecMainStatus) == 65 ]] || fail "diverging: exit code $(property "$diverging" ExecMainStatus)"
is_not_restarted "$diverging" 0 || fail "65: $(property "$diverging" Result), $(property "$diverging" NRestarts) restarts"
say "diverging: exit code 65, not restarted"

# If the unit's filter does not permit seccomp, stokerd fails with one clear error and is not
# restarted.
systemctl start "$denied" 2>/dev/null || true
within 30 "the end without a sandbox" has_state "$denied" failed
[[ $(property "$denied" ExecMainStatus) == 78 && $(property "$denied" NRestarts) == 0 ]] ||
  fail "without a sandbox: $(property "$denied" ExecMainStatus), $(property "$denied" NRestarts) restarts"
journalctl --no-pager -u "$denied" | grep -q 'feed.sandbox: .*SystemCallFilter=seccomp' || fail "no error contains the fix"
say "denied: exit code 78 names SystemCallFilter=seccomp"

# An exported module of root, read by the user stoker.
if [[ -e /usr/local/share/stoker-test/module/graph.json ]]; then
  cp -r /usr/local/share/stoker-test/module /etc/stoker/module
  sed 's|^model: .*|model: {name: exported, path: /etc/stoker/module}|; s/max_steps: [0-9]*/max_steps: 2000/' \
    /etc/stoker/denied.yaml >/etc/stoker/exported.yaml
  run=/var/lib/stoker/exported
  systemctl start "$exported" || fail "systemctl start: $(property "$exported" Result), $(property "$exported" ExecMainStatus)"
  within 30 "the end of the exported module's training" has_state "$exported" inactive
  [[ $(property "$exported" Result) == success && $(newest_step) == 2000 ]] ||
    fail "exported module: $(property "$exported" Result), step $(newest_step)"
  grep -q ' exported model tested ' "$run/logs/stokerd.log" || fail "the exported module was not tested"
  systemctl start "$exported_eval" || fail "systemctl start $exported_eval"
  within 30 "the evaluation of the exported module" has_state "$exported_eval" inactive
  [[ -s $run/eval/step-000002000.json ]] || fail "the exported module is not evaluated"
  say "exported module of root: trained and evaluated as stoker"
else
  say "no exported module: there was no PyTorch to export it"
fi
touch "$results/passed"
