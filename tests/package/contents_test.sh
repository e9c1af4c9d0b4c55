#!/usr/bin/env bash
# contents_test.sh PACKAGES SOURCE LIBTORCH: checks files, owners, modes and dependencies of the
# packages, that no file contains a path of the build, and that the archive's programs run.
set -euo pipefail
packages=${1:?give the folder of the packages} source=${2:?give the source folder} libtorch=${3:?give the folder of LibTorch}
[[ -n $(find "$packages" -maxdepth 1 -name 'stoker_*.deb' 2>/dev/null) ]] || {
  printf 'SKIP: the packages were not built (Debian package dpkg-dev)\n'
  exit 77
}
here=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
fail() {
  printf 'contents_test: %s\n' "$*" >&2
  exit 1
}

# Without the settings and pages, and without the CUDA module, which not every build has.
list_files() { (cd "$1" && find . ! -type d -printf '%P\n' | grep -vE '^usr/share/(stoker/config|doc/stoker/docs)/|libstoker_cuda\.so$' | sort); }
expect_files() { diff -u - <(list_files "$1") || fail "$(basename "$1") has other files"; }

dpkg-deb -R "$packages"/stoker_*.deb "$scratch/stoker"
dpkg-deb -R "$packages"/stoker-dev_*.deb "$scratch/stoker-dev"
expect_files "$scratch/stoker" <<'FILES'
DEBIAN/conffiles
DEBIAN/control
DEBIAN/md5sums
DEBIAN/postinst
DEBIAN/postrm
DEBIAN/prerm
etc/needrestart/conf.d/stoker.conf
etc/stoker/demo.yaml
usr/bin/stoker-eval
usr/bin/stoker-export
usr/bin/stoker-libtorch
usr/bin/stoker-web
usr/bin/stokerctl
usr/bin/stokerd
usr/lib/stoker/torch
usr/lib/systemd/system/stoker-eval@.service
usr/lib/systemd/system/stokerd@.service
usr/lib/systemd/system/system-stoker.slice
usr/lib/sysusers.d/stoker.conf
usr/lib/tmpfiles.d/stoker.conf
usr/libexec/stoker/stoker-feed
usr/libexec/stoker/stoker-stacks
usr/share/bash-completion/completions/stoker-eval
usr/share/bash-completion/completions/stoker-web
usr/share/bash-completion/completions/stokerctl
usr/share/bash-completion/completions/stokerd
usr/share/doc/stoker/CHANGELOG.md
usr/share/doc/stoker/CONTRIBUTING.md
usr/share/doc/stoker/README.md
usr/share/doc/stoker/SECURITY.md
usr/share/doc/stoker/changelog.gz
usr/share/doc/stoker/copyright
usr/share/doc/stoker/stoker.spdx.json
usr/share/fish/vendor_completions.d/stoker-eval.fish
usr/share/fish/vendor_completions.d/stoker-web.fish
usr/share/fish/vendor_completions.d/stokerctl.fish
usr/share/fish/vendor_completions.d/stokerd.fish
usr/share/lintian/overrides/stoker
usr/share/man/man1/stoker-eval.1.gz
usr/share/man/man1/stoker-export.1.gz
usr/share/man/man1/stoker-web.1.gz
usr/share/man/man1/stokerctl.1.gz
usr/share/man/man5/stoker.yaml.5.gz
usr/share/man/man8/stoker-libtorch.8.gz
usr/share/man/man8/stokerd.8.gz
usr/share/stoker/events/mail.py
usr/share/stoker/events/mlflow_log.py
usr/share/stoker/events/wandb_log.py
usr/share/stoker/events/webhook.py
usr/share/stoker/libtorch/libtorch-cpu.txt
usr/share/stoker/libtorch/libtorch-cuda.txt
usr/share/stoker/libtorch/libtorch-version
usr/share/stoker/libtorch/libtorch_wheels.sh
usr/share/stoker/monitoring/grafana-dashboard.json
usr/share/stoker/monitoring/prometheus-rules.yml
usr/share/stoker/python/stoker/__init__.py
usr/share/stoker/python/stoker/programs.py
usr/share/stoker/python/stoker_export/__init__.py
usr/share/stoker/python/stoker_export/__main__.py
usr/share/stoker/python/stoker_export/exporter.py
usr/share/stoker/python/stoker_export/files.py
usr/share/stoker/python/stoker_export/graph.py
usr/share/stoker/python/stoker_export/operators.txt
usr/share/stoker/python/stoker_export/run_data.py
usr/share/stoker/python/stoker_export/self_test.py
usr/share/stoker/python/stoker_export/step.py
usr/share/zsh/vendor-completions/_stoker-eval
usr/share/zsh/vendor-completions/_stoker-web
usr/share/zsh/vendor-completions/_stokerctl
usr/share/zsh/vendor-completions/_stokerd
FILES
expect_files "$scratch/stoker-dev" <<'FILES'
DEBIAN/control
DEBIAN/md5sums
usr/include/stoker/plugin.h
usr/include/stoker/plugin_entry.h
usr/include/stoker/producer.h
usr/include/stoker/testing.h
usr/lib/cmake/stoker/stoker-config-version.cmake
usr/lib/cmake/stoker/stoker-config.cmake
usr/share/doc/stoker-dev/changelog.gz
usr/share/doc/stoker-dev/copyright
usr/share/stoker/plugin/compile.sh
usr/share/stoker/plugin/gated_mlp.cc
usr/share/stoker/plugin/gated_mlp_test.cc
usr/share/stoker/producer/ring_producer.cc
usr/share/stoker/producer/ring_producer.py
FILES
[[ -s $scratch/stoker/usr/share/doc/stoker/docs/operations.md ]] || fail "the package has no documentation"
python3 -B "$here/names_test.py" "$scratch/stoker/usr" "$scratch/stoker-dev/usr" || fail "the package names what it does not contain"
for package in "$packages"/*.deb; do
  others=$(dpkg-deb -c "$package" | grep -vE '^(-rw-r--r--|[d-]rwxr-xr-x|lrwxrwxrwx) root/root ' || true)
  [[ -z $others ]] || fail "$(basename "$package"): owner or mode: $others"
done

# Each library that a program needs belongs to a package that the package depends on.
depends=$(dpkg-deb -f "$packages"/stoker_*.deb Depends)
for library in boost-json fmt isal jpeg62-turbo prometheus-cpp-core spdlog pcre2 spng ssl stdc++ systemd utf8proc webp yaml-cpp zstd; do
  [[ $depends == *lib$library* ]] || fail "Depends lacks the package of $library: $depends"
done

mkdir "$scratch/archive"
tar -C "$scratch/archive" --strip-components=1 -xf "$packages"/stoker-*.tar.gz
for tree in stoker stoker-dev archive; do
  found=$(grep -rlF -e "$source/" -e "$packages" "$scratch/$tree" || true)
  [[ -z $found ]] || fail "files contain a path of the build: $found"
  # nvcc names what is in an anonymous namespace by a hash of the path, and its temporary files by its process.
  found=$(grep -rlE -e '_GLOBAL__N__[0-9a-f]{8}_' -e 'tmpxft_' "$scratch/$tree" || true)
  [[ -z $found ]] || fail "symbols depend on where or when the kernels were built: $found"
done

grep -q '^ExecStart=/usr/local/bin/stokerd ' "$scratch/archive/lib/systemd/system/stokerd@.service" || fail "unit of the archive"
! [[ -L $scratch/archive/lib/stoker/torch ]] || fail "the archive has a link to a LibTorch"
"$scratch/archive/bin/stoker-libtorch" "$libtorch"
version=$("$scratch/archive/bin/stokerd" --version)
for fact in '^stokerd [0-9.]* (LibTorch [0-9.]*)$' '^commit    ' '^compiler  [A-Z]' '^build     [A-Z]' '^CUDA      '; do
  grep -q "$fact" <<<"$version" || fail "--version lacks $fact: $version"
done

# The licenses of the archive's copies of libraries.
for library in "$scratch"/archive/lib/stoker/*.so.*; do
  package=$(dpkg -S "*/${library##*/}" | sed 's/[:,].*//;q')
  [[ -s $scratch/archive/share/doc/stoker/licenses/$package ]] || fail "the archive lacks the license of ${library##*/}"
done
[[ -s $scratch/archive/share/doc/stoker/stoker.spdx.json && -s $scratch/archive/share/doc/stoker/LICENSE ]] ||
  fail "the archive lacks its license or bill of materials"

# The bill of materials: valid JSON with a package per dependency.
python3 - "$scratch/stoker/usr/share/doc/stoker/stoker.spdx.json" <<'PYTHON'
import json
import sys

document = json.load(open(sys.argv[1]))
names = {package["name"] for package in document["packages"]}
assert {"stoker", "LibTorch", "yaml-cpp", "zlib"} <= names, names
assert len(document["relationships"]) == len(document["packages"]), "a package without a relationship"
for package in document["packages"]:
    assert package["versionInfo"] and package["licenseDeclared"], package
PYTHON
