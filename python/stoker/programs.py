"""Starts the programs with the PyTorch of this environment; console scripts of the wheel."""
import functools
import importlib.util
import os
import re
import signal
import sys

PREFIX = os.path.dirname(os.path.abspath(__file__))  # contains bin/, lib/, libexec/ and share/
EX_CONFIG = 78  # with which systemd does not start a unit again


def torch_folder():
    """The folder of the package torch, which is not imported; or None."""
    found = importlib.util.find_spec("torch")
    return list(found.submodule_search_locations)[0] if found and found.submodule_search_locations else None


def installed_version(folder):
    with open(os.path.join(folder, "version.py"), encoding="utf-8") as file:
        return re.search(r"__version__ = '([^']*)'", file.read())[1]


def check_torch(folder):
    """Why the programs cannot use it, with what to do; or None."""
    with open(os.path.join(PREFIX, "share/stoker/libtorch/libtorch-version"), encoding="utf-8") as file:
        needed = file.read().strip()
    command = f"run: {sys.executable} -m pip install torch=={needed}"
    if folder is None:
        return f"PyTorch is not installed in {sys.prefix}; {command}"
    version = installed_version(folder)
    if version.split("+")[0] != needed:
        return f"{folder} is PyTorch {version}, and this stoker needs {needed}; {command}"
    return None


def run(name, needs_torch=False):
    folder = torch_folder()
    error = check_torch(folder) if needs_torch else None
    if error:
        print(f"{name}: {error}", file=sys.stderr)
        return EX_CONFIG
    # The programs find a torch next to this package; another one is that of the system's packages below an environment.
    if folder and not os.path.samefile(os.path.dirname(folder), os.path.dirname(PREFIX)):
        paths = [os.path.join(folder, "lib"), os.environ.get("LD_LIBRARY_PATH")]
        os.environ["LD_LIBRARY_PATH"] = ":".join(path for path in paths if path)
    # Python ignores these, and a program would inherit that.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    os.execv(os.path.join(PREFIX, "bin", name), [os.path.abspath(sys.argv[0]), *sys.argv[1:]])


stokerd = functools.partial(run, "stokerd", needs_torch=True)
stoker_eval = functools.partial(run, "stoker-eval", needs_torch=True)
stokerctl = functools.partial(run, "stokerctl")
stoker_web = functools.partial(run, "stoker-web")
