#!/usr/bin/env bash
# package_steps.sh: runs in the container of package_test.sh. Installs /packages/old.deb as a user
# would, upgrades it to /packages/new.deb while it trains, removes and purges it. Creates
# /results/passed if every step succeeded.
set -euo pipefail
readonly unit=stokerd@demo.service eval_unit=stoker-eval@demo.service run=/var/lib/stoker/demo
export DEBIAN_FRONTEND=noninteractive

source "$(dirname "${BASH_SOURCE[0]}")/../systemd/steps.sh"
save_logs_at_exit /results "$unit" "$eval_unit"
has_resumed_from() { grep -q " run resumed step=$1 " "$run/logs/stokerd.log"; }
# dpkg with its output in a file.
package() {
  dpkg "$@" >/results/dpkg 2>&1 </dev/null || fail "dpkg $*"
  ! grep -iE 'warning|not found|no such file' /results/dpkg | grep -v "'/etc/stoker' not empty" || fail "dpkg $*: warnings"
}

package --install /packages/old.deb
id stoker >/dev/null || fail "there is no user stoker"
[[ $(stat -c '%U %a' /var/lib/stoker) == "stoker 755" ]] || fail "/var/lib/stoker: $(stat -c '%U %a' /var/lib/stoker)"
grep -q 'stoker-libtorch --install' /results/dpkg || fail "a missing LibTorch is not reported"
[[ -z $(systemctl list-units --plain --no-legend 'stokerd@*' 'stoker-eval@*') ]] || fail "a service was started"
! stoker-libtorch --show 2>/dev/null || fail "LibTorch is found before one is selected"
say "installed: no service is started"

stoker-libtorch /opt/libtorch/torch || fail "stoker-libtorch"
[[ $(readlink /etc/stoker/libtorch) == /opt/libtorch/torch ]] || fail "the link is not in /etc"
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
[[ $(stoker-libtorch --show) == /opt/libtorch/torch ]] || fail "the selection has changed"

systemctl --quiet enable --now "$unit" "$eval_unit" || fail "systemctl enable --now"
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

echo '# changed by the administrator' >>/etc/stoker/demo.yaml
cp /etc/stoker/demo.yaml /etc/stoker/mine.yaml
package --install /packages/new.deb
[[ $(dpkg-query -W -f '${Version}' stoker) == *+new ]] || fail "the new version is not installed"
[[ $(property "$unit" MainPID) == "$main" && $(property "$unit" NRestarts) == 0 ]] || fail "the upgrade has restarted stokerd"
has_state "$eval_unit" active || fail "the upgrade has stopped stoker-eval"
grep -q "until they are restarted.*$unit" /results/dpkg || fail "running services are not reported"
cmp -s /etc/stoker/demo.yaml /etc/stoker/mine.yaml || fail "the upgrade has changed the configuration"
[[ $(stoker-libtorch --show) == /opt/libtorch/torch ]] || fail "the upgrade has changed the selection of LibTorch"
step=$(newest_step)
within 30 "training after the upgrade" has_step_after "$step"
say "upgraded: continues to train, the configuration is unchanged"

systemctl restart "$unit" || fail "systemctl restart"
step=$(newest_step)
within 30 "training after the restart" has_step_after "$step"
grep -q ' run resumed step=' "$run/logs/stokerd.log" || fail "the new version has not resumed the run"
say "restarted with the new version: resumed"

package --remove stoker
[[ ! -e /usr/bin/stokerd && -e /etc/stoker/demo.yaml ]] || fail "removal: programs or configuration"
if ! has_state "$unit" inactive || ! has_state "$eval_unit" inactive; then fail "removal has left a service running"; fi
grep -q '"state":"stopped"' "$run/exit_status.json" || fail "the run was not stopped: $(cat "$run/exit_status.json")"
step=$(newest_step)
say "removed: stopped at step $step; run and configuration are kept"

package --install /packages/new.deb
systemctl start "$unit" || fail "start after reinstallation"
within 30 "training after reinstallation" has_step_after "$step"
has_resumed_from "$step" || fail "not resumed from step $step"
say "installed again: resumed from step $step"

package --purge stoker
[[ -s $(find "$run/checkpoints" -name model.safetensors | head -n 1) && -e /etc/stoker/mine.yaml ]] || fail "purge has deleted a run or a configuration"
[[ ! -e /etc/stoker/demo.yaml && ! -L /etc/stoker/libtorch && -e /opt/libtorch/torch ]] || fail "purge: $(ls -l /etc/stoker)"
[[ -z $(find /etc/systemd -name 'stoker*' -type l) ]] || fail "purge has left $(find /etc/systemd -name 'stoker*' -type l)"
grep -q '/var/lib/stoker are kept' /results/dpkg || fail "purge does not report that runs are kept"
say "purged: runs are kept"
touch /results/passed
