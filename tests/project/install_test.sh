#!/usr/bin/env bash
# install_test.sh BUILD LIBTORCH: checks that the installed tree is relocatable, uses the configured
# LibTorch, includes its own libraries and is small, and that the units contain its path.
set -euo pipefail
build=${1:?give the build folder}
libtorch=${2:?give the folder of LibTorch}
readonly max_mib=76  # with gpu-check and documentation; without symbols
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
prefix=$scratch/prefix
cmake --install "$build" --prefix "$prefix" >"$scratch/install.log"
fail() {
  printf 'install_test: %s\n' "$*" >&2
  exit 1
}

for program in stokerd stoker-eval stokerctl stoker-web; do
  "$prefix/bin/$program" --version
done
[[ -x $prefix/libexec/stoker/stoker-feed && -x $prefix/libexec/stoker/stoker-stacks ]]
grep -q "^ExecStart=$prefix/bin/stokerd " "$prefix/lib/systemd/system/stokerd@.service"
grep -q "^ExecStart=$prefix/bin/stoker-eval " "$prefix/lib/systemd/system/stoker-eval@.service"

for file in man/man1/stokerctl.1 man/man1/stoker-web.1 man/man1/stoker-eval.1 man/man5/stoker.yaml.5 man/man8/{stokerd,stoker-libtorch}.8 \
  bash-completion/completions/{stokerctl,stoker-eval,stokerd} zsh/site-functions/_{stokerctl,stoker-eval,stokerd} \
  fish/vendor_completions.d/{stokerctl,stoker-eval,stokerd}.fish stoker/config/{stoker.yaml,stoker.schema.json,cpp-gpt.yaml} stoker/producer/ring_producer.{cc,py} \
  stoker/monitoring/{prometheus-rules.yml,grafana-dashboard.json}; do
  [[ -s $prefix/share/$file ]] || fail "share/$file is missing or empty"
done

mib=$(du -sm "$prefix" | cut -f1)
((mib < max_mib)) || fail "the tree takes $mib MiB, more than $max_mib"

# Move the tree and use a LibTorch in another location.
mkdir "$scratch/far away"
mv "$prefix" "$scratch/far away/stoker"
tree="$scratch/far away/stoker"
ln -s "$libtorch" "$scratch/another-torch"
"$tree/bin/stoker-libtorch" "$scratch/another-torch"
[[ $("$tree/bin/stoker-libtorch" --show) == "$(readlink -f "$libtorch")" ]] || fail "--show prints another LibTorch"
for program in bin/stokerd bin/stoker-eval bin/stokerctl libexec/stoker/stoker-{feed,stacks}; do
  needed=$(ldd "$tree/$program")
  ! grep 'not found' <<<"$needed" || fail "$program lacks libraries"
  # Only the C and C++ runtime of the system and libsystemd, with what that needs, are allowed; LibTorch
  # is used through the link.
  external=$(sed -n 's/^.* => \(\/.*\) (0x[0-9a-f]*)$/\1/p' <<<"$needed" |
    xargs -r -d '\n' realpath -ms | grep -v "^$tree/lib/stoker/" |
    grep -vE '/(ld-linux[^/]*|lib(c|m|dl|rt|pthread|util|resolv|stdc\+\+|gcc_s|systemd|cap|gcrypt|gpg-error|lzma|lz4)\.so[^/]*)$' || true)
  [[ -z $external ]] || fail "$program uses external libraries: $external"
done

# Train with the programs of the tree only.
cat >"$scratch/run.yaml" <<YAML
run: {dir: "$scratch/run"}
data: {train: {format: synthetic, num_samples: 64, input_shape: [8], num_targets: 2}}
model: {name: mlp, hidden_sizes: [16]}
task: {name: regression}
train: {max_steps: 20, micro_batch_size: 4, device: cpu, num_threads: 1}
YAML
(cd / && env -u LD_LIBRARY_PATH "$tree/bin/stokerd" --config "$scratch/run.yaml") >"$scratch/run.log" 2>&1 ||
  fail "training failed: $(tail -n 5 "$scratch/run.log")"
"$tree/bin/stokerctl" --run-dir "$scratch/run" verify >/dev/null

# expect_rejected FOLDER TEXT: stoker-libtorch exits with 78 and one line that contains TEXT, and the
# selection is unchanged.
expect_rejected() {
  local code=0
  "$tree/bin/stoker-libtorch" "$1" >"$scratch/output" 2>"$scratch/error" || code=$?
  [[ $code == 78 && ! -s $scratch/output ]] || fail "stoker-libtorch $1: exit code $code, $(cat "$scratch/output")"
  [[ $(head -n 1 "$scratch/error") == "stoker-libtorch: $1: $2"* ]] || fail "stoker-libtorch $1: $(cat "$scratch/error")"
  # With the CUDA module, it also says what that lacks.
  "$tree/bin/stoker-libtorch" --check | grep -qE " in $(readlink -f "$libtorch")(, for the CPU only: .*)?$" || fail "stoker-libtorch $1 has changed the selection"
}
# like_libtorch FOLDER: the same LibTorch in a folder without the NVIDIA libraries next to it.
like_libtorch() {
  mkdir -p "$1/lib"
  ln -s "$libtorch"/lib/* "$1/lib/"
}
expect_rejected "$scratch" 'has no lib/libtorch_cpu.so'
like_libtorch "$scratch/without-c10"
rm "$scratch/without-c10/lib/libc10.so"
expect_rejected "$scratch/without-c10" 'lib/libc10.so is missing or cannot be read'
like_libtorch "$scratch/other-version"
echo "__version__ = '2.10.0+cpu'" >"$scratch/other-version/version.py"
expect_rejected "$scratch/other-version" 'is version 2.10.0+cpu; stoker needs '
# The CPU part of PyTorch's wheel needs libraries of NVIDIA, too; some machines have their own.
like_libtorch "$scratch/without-nvidia"
if ldd "$scratch/without-nvidia/lib/libtorch_cpu.so" | grep -q 'libcudart.* not found'; then
  expect_rejected "$scratch/without-nvidia" 'does not work: '
  grep -q 'NVIDIA libraries are missing' "$scratch/error" || fail "missing NVIDIA libraries: $(cat "$scratch/error")"
fi
code=0
PIP_NO_INDEX=1 PIP_FIND_LINKS='' "$tree/bin/stoker-libtorch" --install "$scratch/new" >"$scratch/output" 2>&1 || code=$?
[[ $code == 69 && -z $(find "$scratch" -maxdepth 1 -name 'new*') ]] || fail "a failed download: exit code $code, $(cat "$scratch/output")"

# Without a GPU, gpu_check prints one line and exits.
if ! nvidia-smi -L >/dev/null 2>&1; then
  output=$("$tree/libexec/stoker/gpu-check/gpu_check.sh" "$scratch/gpu" 2>&1) && code=0 || code=$?
  [[ $code == 77 && $(wc -l <<<"$output") == 1 && $output == *"no NVIDIA GPU"* ]] || fail "gpu_check exited with $code: $output"
fi
printf 'a tree of %s MiB\n' "$mib"
