#!/usr/bin/env bash
# image_test.sh PACKAGES CONTAINERFILE LIBTORCH: builds the container image with buildah, and trains in it. The base is made from the
# packages of this machine, so that no registry is needed; LibTorch comes from LIBTORCH instead of the network.
# Skipped without buildah, without its rights, or without the packages that the image needs.
set -euo pipefail
packages=${1:?give the folder of the packages}
containerfile=${2:?give the Containerfile}
libtorch=$(readlink -f "${3:?give the folder of LibTorch}")
here=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
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
work=$(mktemp -d)
export STORAGE_DRIVER=vfs BUILDAH_ISOLATION=chroot
buildah() { command buildah --root "$work/storage" --runroot "$work/run" "$@"; }
clean_up() {
  buildah rm --all >/dev/null 2>&1 || true
  rm -rf "$work"
}
trap clean_up EXIT
fail() {
  printf 'image_test: %s\n' "$*" >&2
  tail -n 30 "$work"/*.log >&2 || true
  exit 1
}
buildah info >"$work/info.log" 2>&1 || skip "buildah is not permitted here: $(tail -n 1 "$work/info.log")"

"$here/bare_root.sh" "$work/root" apt debian-archive-keyring ca-certificates >"$work/root.log" 2>&1 || fail "bare_root.sh failed"
cp /etc/resolv.conf "$work/root/etc/"
cp -r /etc/apt/. "$work/root/etc/apt/"
base=$(buildah from scratch)
buildah copy --quiet "$base" "$work/root" / >"$work/base.log" 2>&1 || fail "the base image cannot be made"
buildah commit --quiet "$base" localhost/base >>"$work/base.log" 2>&1 || fail "the base image cannot be made"
buildah rm "$base" >/dev/null
mkdir "$work/context"
cp "$packages"/stoker_*_amd64.deb "$work/context/"
# LibTorch of this machine, where the image would download it. The libraries that it needs are in the folder next to it.
sed "s|stoker-libtorch --install \${TORCH}|stoker-libtorch /opt/libtorch/${libtorch##*/}|" "$containerfile" >"$work/Containerfile"
grep -q 'stoker-libtorch /opt/libtorch/' "$work/Containerfile" || fail "the Containerfile does not install LibTorch"
buildah build --quiet --build-arg BASE=localhost/base --volume "${libtorch%/*}:/opt/libtorch:ro" --tag stoker --file "$work/Containerfile" \
  "$work/context" >"$work/build.log" 2>&1 || {
  ! grep -qE 'Temporary failure resolving|Could not resolve|Failed to fetch' "$work/build.log" || skip "no Debian mirror"
  fail "the image cannot be built"
}
[[ $(buildah inspect --type image --format '{{.OCIv1.Config.Entrypoint}} {{.OCIv1.Config.User}}' stoker) == '[/usr/bin/tini --] stoker' ]] ||
  fail "the image has another entry point or user"
image=$(buildah from stoker)
buildah run --volume "${libtorch%/*}:/opt/libtorch:ro" "$image" -- /usr/bin/tini -- stokerd --config /etc/stoker/demo.yaml \
  --run-dir /var/lib/stoker/demo --set train.max_steps=20 >"$work/run.log" 2>&1 || fail "training in the image failed"
grep -q 'daemon exited state=finished' "$work/run.log" || fail "training in the image did not finish"
