#!/usr/bin/env python3
"""wheel.py SOURCE PREFIX… OUTPUT: makes the Python wheel of the installed trees PREFIX… (components of CPack).

In site-packages:
  stoker/                  the installed tree: bin, lib, libexec, include, share; and the Python package, whose
                           programs.py starts the programs
  stoker_export/           share/stoker/python of the tree
Below the prefix of the environment: share/man, share/bash-completion, share/zsh, share/fish.

The programs find their libraries relative to themselves, and LibTorch in site-packages/torch instead of lib/stoker/torch.
Its tag is that of the newest symbols of glibc and libstdc++ that any of its files needs. Its bytes depend on the tree and
SOURCE_DATE_EPOCH only.
"""
import base64
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
import zipfile

# Of systems with a version of glibc, the newest symbols of libstdc++ (PEP 600; the policies of auditwheel 6.8).
PLATFORMS = [((2, 28), (3, 4, 24), (1, 3, 11)), ((2, 31), (3, 4, 28), (1, 3, 12)), ((2, 34), (3, 4, 29), (1, 3, 13)),
             ((2, 35), (3, 4, 30), (1, 3, 13)), ((2, 39), (3, 4, 33), (1, 3, 15))]
# What every such system has, and what comes with PyTorch.
OF_SYSTEM = re.compile(r"ld-linux-x86-64\.so\.2|lib(c|m|dl|rt|pthread|resolv|util|stdc\+\+|gcc_s)\.so\.\d+")
OF_PYTORCH = re.compile(r"lib(torch|c10)(_cpu|_cuda)?\.so|libcudart\.so\.\d+")
# Of the installed tree, what only packages for a whole system have.
OMITTED = ("bin/stoker-libtorch", "bin/stoker-export", "share/man/man8/stoker-libtorch.8", "share/stoker/libtorch/libtorch-cpu.txt",
           "share/stoker/libtorch/libtorch-cuda.txt", "share/stoker/libtorch/libtorch_wheels.sh")
OF_ENVIRONMENT = ("share/man/", "share/bash-completion/", "share/zsh/", "share/fish/")


def read_tree(prefixes):
    """{path in the tree: file}"""
    return {str(file.relative_to(prefix)): file for prefix in prefixes for file in sorted(prefix.rglob("*")) if not file.is_dir()}


def is_elf(file):
    with open(file, "rb") as opened:
        return opened.read(4) == b"\x7fELF"


def describe_elf(file):
    """(soname, needed libraries, needed versions of symbols)"""
    text = subprocess.run(["objdump", "-p", file], check=True, capture_output=True, text=True).stdout
    soname = re.search(r"^\s*SONAME\s+(\S+)", text, re.MULTILINE)
    _, _, references = text.partition("Version References:")
    return soname and soname[1], re.findall(r"^\s*NEEDED\s+(\S+)", text, re.MULTILINE), set(re.findall(r"\s(\w+_[\w.]+)$", references, re.MULTILINE))


def find_platform(versions):
    """The oldest platform that has these versions."""
    if "GLIBC_PRIVATE" in versions:
        raise SystemExit("wheel.py: a file needs private symbols of glibc")
    def newest(name):
        return max((tuple(map(int, version.split("_")[1].split("."))) for version in versions if re.fullmatch(name + r"_[\d.]+", version)), default=(0,))
    glibc, glibcxx, cxxabi = newest("GLIBC"), newest("GLIBCXX"), newest("CXXABI")
    for platform, libstdcxx, abi in PLATFORMS:
        if glibcxx <= libstdcxx and cxxabi <= abi:
            return max(platform, glibc[:2])
    raise SystemExit(f"wheel.py: no platform has GLIBCXX {glibcxx} and CXXABI {cxxabi}")


def with_run_path(path, file, folder):
    """The bytes of an ELF file of the tree that searches in lib/stoker, and for LibTorch in the folder next to the tree. Libraries,
    too, since a program's own path does not apply to what its libraries need."""
    def origin(target):
        return "$ORIGIN/" + os.path.relpath(target, os.path.dirname(path))
    copy = shutil.copy(file, os.path.join(folder, "file"))
    subprocess.run(["patchelf", "--set-rpath", origin("lib/stoker") + ":" + origin("../torch/lib"), copy], check=True)
    return pathlib.Path(copy).read_bytes()


def arrange(tree, folder):
    """{path in the wheel: (bytes, is executable)}, and its platform. `folder`: a temporary one."""
    files, versions, elf = {}, set(), {path: describe_elf(file) for path, file in tree.items() if is_elf(file)}
    bundled = {soname for soname, _, _ in elf.values() if soname}
    for path, file in tree.items():
        if path in OMITTED:
            continue
        data, target = file.read_bytes(), "stoker/" + path
        if path in elf:
            soname, needed, needs = elf[path]
            unknown = [name for name in needed if name not in bundled and not OF_SYSTEM.fullmatch(name) and not OF_PYTORCH.fullmatch(name)]
            if unknown:
                raise SystemExit(f"wheel.py: {path} needs {' '.join(unknown)}, which is neither in the wheel nor on every system")
            versions |= needs
            if file.is_symlink():
                continue
            if soname:
                target = "stoker/lib/stoker/" + soname  # a wheel has no links
            data = with_run_path(path, file, folder)
        elif path.startswith("share/stoker/python/"):
            target = path.removeprefix("share/stoker/python/")
            if "/" not in target:
                continue  # README.md, pyproject.toml
        elif path.startswith(OF_ENVIRONMENT):
            target = "DATA/" + path
        files[target] = (data, os.access(file, os.X_OK))
    return files, find_platform(versions)


def metadata(project, source):
    lines = ["Metadata-Version: 2.4", f"Name: {project['name']}", f"Version: {project['version']}", f"Summary: {project['description']}",
             f"Requires-Python: {project['requires-python']}", f"License-Expression: {project['license']}", "License-File: LICENSE"]
    lines += [f"Requires-Dist: {dependency}" for dependency in project["dependencies"]]
    return "\n".join(lines) + "\nDescription-Content-Type: text/markdown\n\n" + (source / "python/README.md").read_text()


def entry_points(project, files):
    programs = [path.removeprefix("stoker/bin/") for path in files if path.startswith("stoker/bin/")]
    scripts = project["scripts"] | {name: "stoker.programs:" + name.replace("-", "_") for name in programs}
    return "[console_scripts]\n" + "".join(f"{name} = {scripts[name]}\n" for name in sorted(scripts))


def write_wheel(file, files, moment):
    record = []
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as wheel:
        def add(path, data, executable=False):
            entry = zipfile.ZipInfo(path, moment)
            entry.external_attr = (0o100755 if executable else 0o100644) << 16
            wheel.writestr(entry, data, zipfile.ZIP_DEFLATED, 6)
        for path, (data, executable) in sorted(files.items(), key=lambda item: (".dist-info/" in item[0], item[0])):
            add(path, data, executable)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
            record.append(f"{path},sha256={digest},{len(data)}")
        info = next(path.partition("/")[0] for path in files if path.endswith("/METADATA"))
        add(f"{info}/RECORD", "\n".join([*record, f"{info}/RECORD,,", ""]).encode())


def main(source, *prefixes, output):
    source = pathlib.Path(source)
    project = tomllib.loads((source / "python/pyproject.toml").read_text())["project"]
    with tempfile.TemporaryDirectory() as folder:
        files, platform = arrange(read_tree([pathlib.Path(prefix) for prefix in prefixes]), folder)
    name, tag = f"{project['name']}-{project['version']}", f"py3-none-manylinux_{platform[0]}_{platform[1]}_x86_64"
    files = {path.replace("DATA/", f"{name}.data/data/") if path.startswith("DATA/") else path: entry for path, entry in files.items()}
    texts = {"METADATA": metadata(project, source), "WHEEL": f"Wheel-Version: 1.0\nGenerator: stoker\nRoot-Is-Purelib: false\nTag: {tag}\n",
             "entry_points.txt": entry_points(project, files), "licenses/LICENSE": (source / "LICENSE").read_text()}
    files |= {f"{name}.dist-info/{path}": (text.encode(), False) for path, text in texts.items()}
    epoch = max(int(os.environ.get("SOURCE_DATE_EPOCH", time.time())), 315532800)  # zip archives begin in 1980
    write_wheel(pathlib.Path(output) / f"{name}-{tag}.whl", files, time.gmtime(epoch)[:6])


if __name__ == "__main__":
    main(*sys.argv[1:-1], output=sys.argv[-1])
