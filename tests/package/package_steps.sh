#!/usr/bin/env bash
# package_steps.sh: runs in the container of package_test.sh. Installs the package with the commands of the
# README, upgrades it to /packages/new.deb while it trains, removes and purges it, and compares the run with an
# undisturbed one. Creates /results/passed if every step succeeded.
set -euo pipefail
readonly unit=stokerd@demo.service eval_unit=stoker-eval@demo.service run=/var/lib/stoker/demo
export DEBIAN_FRONTEND=noninteractive

source "$(dirname "${BASH_SOURCE[0]}")/../systemd/steps.sh"
save_logs_at_exit /results "$unit" "$eval_unit"
has_resumed_from() { grep -q " run resumed step=$1 " "$run/logs/stokerd.log"; }
# apt with its output in a file.
package() {
  "$@" >/results/apt 2>&1 </dev/null || fail "$*"
  ! grep -iE 'warning|not found|no such file' /results/apt | grep -vE "'/etc/stoker' not empty|apt does not have a stable CLI" ||
    fail "$*: warnings"
}
# The commands of the README: install, LibTorch, start, top.
mapfile -t readme <"$(dirname "${BASH_SOURCE[0]}")/readme_commands"
[[ ${#readme[@]} == 4 && ${readme[0]} == "apt install ./"*.deb && ${readme[1]} == "stoker-libtorch --install" && ${readme[3]} == *" top" ]] ||
  fail "the README has other commands: ${readme[*]}"

cd /packages
# shellcheck disable=SC2086  # a command of words
package ${readme[0]}
cd /
id stoker >/dev/null || fail "there is no user stoker"
[[ $(stat -c '%U %a' /var/lib/stoker) == "stoker 755" ]] || fail "/var/lib/stoker: $(stat -c '%U %a' /var/lib/stoker)"
grep -q 'stoker-libtorch --install' /results/apt || fail "a missing LibTorch is not reported"
[[ -z $(systemctl list-units --plain --no-legend 'stokerd@*' 'stoker-eval@*') ]] || fail "a service was started"
! stoker-libtorch --show 2>/dev/null || fail "LibTorch is found before one is selected"
say "installed: no service is started"

# From wheels, if this machine has them: there is no network.
if [[ -d /wheels ]]; then
  export PIP_NO_INDEX=1 PIP_FIND_LINKS=/wheels
  # shellcheck disable=SC2086  # a command of words
  ${readme[1]} || fail "${readme[1]}"
  libtorch=$(echo /opt/stoker/libtorch-*/torch)
else
  stoker-libtorch /opt/libtorch/torch || fail "stoker-libtorch"
  libtorch=/opt/libtorch/torch
fi
[[ $(readlink /etc/stoker/libtorch) == "$libtorch" ]] || fail "the link is not in /etc"
say "selected LibTorch"
# A folder that only root can read, and one without the NVIDIA libraries that the CPU part of
# PyTorch's wheel needs.
for folder in /root/unreadable /opt/incomplete; do
  mkdir -p "$folder"
  cp -rs /opt/libtorch/torch/lib "$folder/"
done
! error=$(stoker-libtorch /root/unreadable 2>&1) || fail "a folder that the user stoker cannot read was selected"
[[ $error == *"/root/unreadable: lib/libtorch_cpu.so is missing or cannot be read" ]] || fail "unreadable folder: $error"
if [[ -d /opt/libtorch/nvidia ]]; then
  ! error=$(stoker-libtorch /opt/incomplete 2>&1) || fail "a folder without the NVIDIA libraries was selected"
  [[ $error == *"error while loading shared libraries"*"NVIDIA libraries are missing"* ]] || fail "incomplete folder: $error"
fi
[[ $(stoker-libtorch --show) == "$libtorch" ]] || fail "the selection has changed"

[[ ${readme[2]} == "systemctl enable --now ${unit%.service} ${eval_unit%.service}" ]] || fail "the README starts others: ${readme[2]}"
# shellcheck disable=SC2086  # a command of words
${readme[2]} 2>/results/enable || fail "${readme[2]}"
within 30 "the first checkpoint" has_step_after 0
within 30 "an evaluation" test -s "$run/eval/best.json"
main=$(property "$unit" MainPID)
[[ $(stat -c %U "/proc/$main") == stoker ]] || fail "stokerd runs as $(stat -c %U "/proc/$main")"
for name in "$unit" "$eval_unit"; do
  [[ $(property "$name" ControlGroup) == "/system.slice/system-stoker.slice/$name" ]] || fail "$name: $(property "$name" ControlGroup)"
done
# LibTorch reports processor information that it cannot read, and then uses no vector instructions.
! journalctl --no-pager -u "$unit" -u "$eval_unit" | grep -i cpuinfo || fail "LibTorch cannot read the processor type"
code=0
error=$(setpriv --reuid=65534 --regid=65534 --clear-groups stokerctl --run-dir "$run" status 2>&1) || code=$?
[[ $code == 74 && $error == *"permission denied"* ]] || fail "stokerctl as another user: $code, $error"
say "trains and evaluates as the user stoker, in one slice"

# In a terminal, until its user types q.
mkfifo /tmp/keys
TERM=xterm LC_ALL=C.UTF-8 script --quiet --flush --return --command "stty rows 24 cols 80; ${readme[3]}" /results/top </tmp/keys >/dev/null 2>&1 &
top=$!
exec 8>/tmp/keys
within 30 "the screen of top" grep -qs 'batches ready' /results/top
printf q >&8
wait "$top" || fail "top: $?"
exec 8>&-
say "${readme[3]}: shown"

echo '# changed by the administrator' >>/etc/stoker/demo.yaml
cp /etc/stoker/demo.yaml /etc/stoker/mine.yaml
package apt-get install /packages/new.deb
[[ $(dpkg-query -W -f '${Version}' stoker) == *+new ]] || fail "the new version is not installed"
[[ $(property "$unit" MainPID) == "$main" && $(property "$unit" NRestarts) == 0 ]] || fail "the upgrade has restarted stokerd"
has_state "$eval_unit" active || fail "the upgrade has stopped stoker-eval"
grep -q "until they are restarted.*$unit" /results/apt || fail "running services are not reported"
cmp -s /etc/stoker/demo.yaml /etc/stoker/mine.yaml || fail "the upgrade has changed the configuration"
[[ $(stoker-libtorch --show) == "$libtorch" ]] || fail "the upgrade has changed the selection of LibTorch"
step=$(newest_step)
within 30 "training after the upgrade" has_step_after "$step"
say "upgraded: continues to train, the configuration is unchanged"

systemctl restart "$unit" || fail "systemctl restart"
step=$(newest_step)
within 30 "training after the restart" has_step_after "$step"
grep -q ' run resumed step=' "$run/logs/stokerd.log" || fail "the new version has not resumed the run"
say "restarted with the new version: resumed"

package apt-get remove stoker
[[ ! -e /usr/bin/stokerd && -e /etc/stoker/demo.yaml ]] || fail "removal: programs or configuration"
if ! has_state "$unit" inactive || ! has_state "$eval_unit" inactive; then fail "removal has left a service running"; fi
grep -q '"state":"stopped"' "$run/exit_status.json" || fail "the run was not stopped: $(cat "$run/exit_status.json")"
step=$(newest_step)
say "removed: stopped at step $step; run and configuration are kept"

package apt-get install /packages/new.deb
# Upgraded while it trained, restarted with the new version, and stopped by the removal: the same bytes as a
# run without any of this.
newest=$(printf 'checkpoints/step-%09d' "$step")
settings=$(sed -n 's/^ExecStart=.*%S[^ ]* //p' "/etc/systemd/system/$unit.d/test.conf")
install -d -o stoker /tmp/undisturbed
# shellcheck disable=SC2086  # options
setpriv --reuid=stoker --regid=stoker --clear-groups stokerd --config /etc/stoker/demo.yaml --run-dir /tmp/undisturbed $settings \
  --set train.max_steps="$step" --set checkpoint.save_every_steps="$step" >/results/undisturbed 2>&1 || fail "the undisturbed run"
for file in model optimizer; do
  cmp "$run/$newest/$file.safetensors" "/tmp/undisturbed/$newest/$file.safetensors" || fail "the upgrade has changed the training"
done
say "the same bytes after $step steps as without the upgrade"

systemctl start "$unit" || fail "start after reinstallation"
within 30 "training after reinstallation" has_step_after "$step"
has_resumed_from "$step" || fail "not resumed from step $step"
say "installed again: resumed from step $step"

package apt-get purge stoker
[[ -s $(find "$run/checkpoints" -name model.safetensors | head -n 1) && -e /etc/stoker/mine.yaml ]] || fail "purge has deleted a run or a configuration"
[[ ! -e /etc/stoker/demo.yaml && ! -L /etc/stoker/libtorch && ! -e /opt/stoker && -e /opt/libtorch/torch ]] ||
  fail "purge: $(ls -l /etc/stoker /opt)"
[[ -z $(find /etc/systemd -name 'stoker*' -type l) ]] || fail "purge has left $(find /etc/systemd -name 'stoker*' -type l)"
grep -q '/var/lib/stoker are kept' /results/apt || fail "purge does not report that runs are kept"
say "purged: runs are kept"
touch /results/passed
