#!/usr/bin/env bash
# image_test.sh PACKAGES CONTAINERFILE LIBTORCH: builds the container image with buildah, and trains in it. The base is made from the
# packages of this machine, so that no registry is needed; LibTorch comes from LIBTORCH instead of the network.
# Skipped without buildah, without its rights, without the packages that the image needs, or if a Debian mirror does not answer.
set -euo pipefail
packages=${1:?give the folder of the packages}
containerfile=${2:?give the Containerfile}
libtorch=$(readlink -f "${3:?give the folder of LibTorch}")
here=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
limit=750  # seconds of image_steps.sh: less than the timeout of the test, after which nothing would be removed
skip() {
  printf 'SKIP: %s\n' "$*"
  exit 77
}
((EUID == 0)) || skip "needs root, to copy this machine's packages"
command -v buildah >/dev/null || skip "no buildah on this machine (Debian package buildah)"
[[ -n $(find "$packages" -maxdepth 1 -name 'stoker_*.deb' 2>/dev/null) ]] || skip "the packages were not built"
for package in tini systemd-standalone-sysusers systemd-standalone-tmpfiles; do
  [[ -n $(apt-cache policy "$package" 2>/dev/null) ]] || skip "apt does not know $package"
done
unshare --pid --fork --mount --mount-proc true 2>/dev/null || skip "namespaces are not permitted here"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
  printf 'image_test: %s\n' "$*" >&2
  tail -n 30 "$work"/*.log >&2 || true
  exit 1
}
# Debian's sources only: the base has no keyrings of others.
mkdir "$work/context" "$work/tmp" "$work/lib" "$work/cache"
# shellcheck disable=SC2016  # apt-get expands these
apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' 'Origin: Debian' |
  grep -E '^https?://' | sort -u >"$work/sources" || skip "apt has no source of Debian"
mirror_answers() {
  while read -r uri suite _; do
    timeout 30 /usr/lib/apt/apt-helper -o Acquire::Retries=0 -o APT::Sandbox::User=root download-file "${uri}dists/$suite/InRelease" "$work/InRelease" \
      </dev/null >"$work/mirror.log" 2>&1 || return 1
  done <"$work/sources"
}
mirror_answers || skip "$uri does not answer with $suite: $(tail -n 1 "$work/mirror.log")"

"$here/bare_root.sh" "$work/root" apt debian-archive-keyring ca-certificates >"$work/root.log" 2>&1 || fail "bare_root.sh failed"
cp /etc/resolv.conf "$work/root/etc/"
sed 's|^|deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] |' "$work/sources" >"$work/root/etc/apt/sources.list"
# If the mirror stops answering, apt waits 20 seconds and not some minutes for each file.
cat >"$work/root/etc/apt/apt.conf.d/90image-test" <<'APT'
Acquire::Retries "0";
Acquire::http::Timeout "20";
Acquire::https::Timeout "20";
Acquire::Languages "none";
APT
{ apt-config dump | grep -iE '^Acquire::https?::Proxy(::| )' || true; } >>"$work/root/etc/apt/apt.conf.d/90image-test"
cp "$packages"/stoker_*_amd64.deb "$work/context/"
# LibTorch of this machine, where the image would download it. The libraries that it needs are in the folder next to it.
sed "s|stoker-libtorch --install \${TORCH}|stoker-libtorch /opt/libtorch/${libtorch##*/}|" "$containerfile" >"$work/Containerfile"
grep -q 'stoker-libtorch /opt/libtorch/' "$work/Containerfile" || fail "the Containerfile does not install LibTorch"

# In separate namespaces, whose mounts and processes end with the program.
code=0
timeout --foreground --signal KILL "$limit" unshare --pid --fork --mount --propagation private --mount-proc --kill-child \
  "$here/image_steps.sh" "$work" "${libtorch%/*}" || code=$?
case $code in
  0) exit 0 ;;
  77) exit 77 ;;
  137) reason="not done after $limit seconds" ;;
  *) reason="image_steps.sh failed" ;;
esac
# The build needs the mirror, training does not.
[[ -e $work/run.log ]] || mirror_answers || skip "$uri answers no more: $(tail -n 1 "$work/mirror.log")"
fail "$reason"
