#!/usr/bin/env bash
# wheel_service_steps.sh: runs in the container of wheel_service_test.sh. Installs the wheel in environments below /opt and /home, writes
# units with stokerctl install-service, and trains with them as a service of the system and of a user. Creates /results/passed.
set -euo pipefail
readonly unit=stokerd@demo.service eval_unit=stoker-eval@demo.service
run=/var/lib/stoker/demo

source "$(dirname "${BASH_SOURCE[0]}")/../systemd/steps.sh"
save_logs_at_exit /results "$unit" "$eval_unit"
wheel=$(echo /wheel/*.whl)

# make_environment FOLDER
make_environment() {
  python3 -m venv "$1"
  "$1/bin/pip" install --quiet --no-index --no-deps "$wheel"
  local site entry
  site=$("$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("platlib"))')
  for entry in /opt/pytorch/*; do
    [[ -e $site/${entry##*/} ]] || ln -s "$entry" "$site/"
  done
}
expect_error() {
  local expected=$1 error code=0
  shift
  error=$("$@" 2>&1 >/dev/null) || code=$?
  # shellcheck disable=SC2053  # a pattern
  [[ $code != 0 && $error == $expected ]] || fail "$*: $code, $error"
}
write_config() {
  mkdir -p "${1%/*}"
  cat >"$1" <<'YAML'
data:
  train: {format: synthetic, num_samples: 5000, input_shape: [32], num_classes: 4}
  val: {format: synthetic, num_samples: 64, input_shape: [32], num_classes: 4}
feed: {num_processes: 1}
model: {name: mlp, hidden_sizes: [16]}
task: {name: classification}
train: {max_steps: 100000000, micro_batch_size: 16, device: cpu, num_threads: 1}
checkpoint: {save_every_steps: 200}
YAML
}

make_environment /opt/env
expect_error "stokerctl: there is no user 'stoker'; run systemd-sysusers /opt/env/lib/python*/site-packages/stoker/lib/sysusers.d/stoker.conf, or *" \
  /opt/env/bin/stokerctl install-service
systemd-sysusers /opt/env/lib/python*/site-packages/stoker/lib/sysusers.d/stoker.conf
/opt/env/bin/stokerctl install-service || fail "install-service"
grep -qx 'ExecStart=/opt/env/bin/stokerd --config /etc/stoker/%i.yaml --run-dir %S/stoker/%i' "/etc/systemd/system/stokerd@.service" || fail "ExecStart"
grep -qx 'ProtectHome=yes' "/etc/systemd/system/stokerd@.service" || fail "ProtectHome below /opt"
write_config /etc/stoker/demo.yaml
systemctl daemon-reload
systemctl enable --quiet --now "$unit" "$eval_unit" || fail "systemctl enable: $(property "$unit" ExecMainStatus)"
within 60 "the first checkpoint" has_step_after 0
within 60 "an evaluation" test -s "$run/eval/best.json"
[[ $(stat -c %U "/proc/$(property "$unit" MainPID)") == stoker ]] || fail "another user"
systemctl stop "$unit" || fail "systemctl stop"
[[ $(property "$unit" Result) == success ]] || fail "stop: $(property "$unit" Result)"
say "system: trains and evaluates as stoker with an environment below /opt"

# An environment in a home that only its owner can read.
useradd --create-home ann
chmod 700 /home/ann
make_environment /home/ann/env
chown -R -h ann: /home/ann/env
expect_error "*stokerctl: user 'stoker' cannot start /home/ann/env/bin/stokerd; permit it, name the owner with --service-user, *" \
  /home/ann/env/bin/stokerctl install-service
/home/ann/env/bin/stokerctl install-service --service-user ann || fail "install-service --service-user"
grep -qx 'ProtectHome=read-only' "/etc/systemd/system/stokerd@.service" || fail "ProtectHome below /home"
rm -rf "$run"
systemctl daemon-reload
systemctl start "$unit" || fail "start as ann: $(property "$unit" ExecMainStatus)"
within 60 "the first checkpoint as ann" has_step_after 0
[[ $(stat -c %U "/proc/$(property "$unit" MainPID)") == ann ]] || fail "not ann"
systemctl start "$eval_unit"
within 60 "an evaluation as ann" test -s "$run/eval/best.json"
systemctl stop "$unit" || fail "systemctl stop"
say "system: trains and evaluates as the owner of an environment below /home"

# PyTorch is removed: one error, and no restarts.
mv /home/ann/env/lib/python3*/site-packages/torch /tmp/
systemctl start "$unit" 2>/dev/null || true
within 30 "the end without PyTorch" has_state "$unit" failed
[[ $(property "$unit" ExecMainStatus) == 78 && $(property "$unit" NRestarts) == 0 ]] || fail "without PyTorch: $(property "$unit" ExecMainStatus)"
journalctl --no-pager -u "$unit" | grep -q 'stokerd: PyTorch is not installed in /home/ann/env; run: ' || fail "no error names the command"
mv /tmp/torch /home/ann/env/lib/python3*/site-packages/
say "system: without PyTorch one error, not restarted"

# The service manager of a user, which logind would start.
echo '# mine' >/etc/systemd/system/stokerd@.service
expect_error "stokerctl: /etc/systemd/system/stokerd@.service: was not written by stokerctl install-service; *" \
  /home/ann/env/bin/stokerctl install-service --service-user ann
cat >/run/systemd/system/manager.service <<'UNIT'
[Service]
Type=notify
User=ann
Delegate=yes
Environment=XDG_RUNTIME_DIR=/run/ann HOME=/home/ann
RuntimeDirectory=ann
ExecStart=/lib/systemd/systemd --user
UNIT
systemctl daemon-reload
systemctl start manager.service || fail "the service manager of ann"
of_ann() { setpriv --reuid=ann --regid=ann --init-groups env HOME=/home/ann XDG_RUNTIME_DIR=/run/ann "$@"; }
of_ann /home/ann/env/bin/stokerctl install-service --user || fail "install-service --user"
write_config /home/ann/.config/stoker/demo.yaml
chown -R ann: /home/ann/.config
run=/home/ann/.local/state/stoker/demo
of_ann systemctl --user daemon-reload
of_ann systemctl --user --quiet enable --now "$unit" "$eval_unit" || fail "systemctl --user: $(of_ann systemctl --user status "$unit")"
within 60 "the first checkpoint of the user's service" has_step_after 0
within 60 "an evaluation of the user's service" test -s "$run/eval/best.json"
of_ann systemctl --user stop "$unit" || fail "systemctl --user stop"
grep -q '"state":"stopped"' "$run/exit_status.json" || fail "user: $(cat "$run/exit_status.json")"
say "user: trains and evaluates with systemctl --user"
touch /results/passed
