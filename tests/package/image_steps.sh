#!/usr/bin/env bash
# image_steps.sh WORK LIBTORCH: the part of image_test.sh that runs buildah, in its own mount namespace. Writes WORK/*.log.
set -euo pipefail
work=${1:?give the folder with root, context and Containerfile}
libtorch=${2:?give the folder to mount as /opt/libtorch}
export STORAGE_DRIVER=vfs BUILDAH_ISOLATION=chroot TMPDIR=$work/tmp
buildah() { command buildah --root "$work/storage" --runroot "$work/run" "$@"; }
fail() {
  printf 'image_steps: %s\n' "$*" >&2
  exit 1
}
# Wherever its storage is, buildah also writes to these.
mount --bind "$work/lib" /var/lib
mount --bind "$work/cache" /var/cache
buildah info >"$work/info.log" 2>&1 || {
  printf 'SKIP: buildah is not permitted here: %s\n' "$(tail -n 1 "$work/info.log")"
  exit 77
}

base=$(buildah from scratch)
buildah copy --quiet "$base" "$work/root" / >"$work/base.log" 2>&1 || fail "the base image cannot be made"
buildah commit --quiet "$base" localhost/base >>"$work/base.log" 2>&1 || fail "the base image cannot be made"
buildah rm "$base" >/dev/null
buildah build --quiet --build-arg BASE=localhost/base --volume "$libtorch:/opt/libtorch:ro" --tag stoker --file "$work/Containerfile" \
  "$work/context" >"$work/build.log" 2>&1 || fail "the image cannot be built"
[[ $(buildah inspect --type image --format '{{.OCIv1.Config.Entrypoint}} {{.OCIv1.Config.User}}' stoker) == '[/usr/bin/tini --] stoker' ]] ||
  fail "the image has another entry point or user"
image=$(buildah from stoker)
buildah run --volume "$libtorch:/opt/libtorch:ro" "$image" -- /usr/bin/tini -- stokerd --config /etc/stoker/demo.yaml \
  --run-dir /var/lib/stoker/demo --set train.max_steps=20 >"$work/run.log" 2>&1 || fail "training in the image failed"
grep -q 'daemon exited state=finished' "$work/run.log" || fail "training in the image did not finish"
