#!/bin/sh
# Installs Remit @VERSION@ and its packages from the files beside this one. See INSTALL.md.
set -eu

usage() {
    cat <<'TEXT'
usage: ./install.sh --root DIR [options]

  --root DIR        where the installation keeps its files; made when it is not there
  --dev             let packages that nobody signed pass; the record says so
  --venv DIR        the virtual environment to use or make
                    (default: the active one, else ROOT/venv)
  --python PROGRAM  the Python to make it with, @PYTHON@ or newer
  --wheelhouse DIR  install from the wheels in DIR and ask no index
                    (default: wheelhouse/ beside this program, when it is there)
  --no-local        leave out the small model on this machine and its runtime (98 MB)
  --help            this text
TEXT
}

say() { printf '%s\n' "$1" >&2; }

fail() { # what happened and why; what to do next
    say "error: $1"
    say "  next: $2"
    exit "${3:-1}"
}

wrong_use() { fail "$1" "Run ./install.sh --help." 2; }

root='' dev='' venv='' python='' wheelhouse='' local_models=yes

while [ $# -gt 0 ]; do
    option=$1
    shift
    case $option in
    --root | --venv | --python | --wheelhouse)
        [ $# -gt 0 ] || wrong_use "$option needs a value."
        value=$1
        shift
        ;;
    --root=* | --venv=* | --python=* | --wheelhouse=*)
        value=${option#*=}
        option=${option%%=*}
        ;;
    *) value=none ;;
    esac
    [ -n "$value" ] || wrong_use "$option needs a value."
    case $option in
    --root) root=$value ;;
    --venv) venv=$value ;;
    --python) python=$value ;;
    --wheelhouse) wheelhouse=$value ;;
    --dev) dev=--dev ;;
    --no-local) local_models=no ;;
    --help | -h)
        usage
        exit 0
        ;;
    *) wrong_use "There is no option $option." ;;
    esac
done
[ -n "$root" ] || wrong_use "--root DIR is missing."

# A path that begins with a dash is no option of other programs.
case $root in -*) root=./$root ;; esac
case $venv in -*) venv=./$venv ;; esac
case $wheelhouse in -*) wheelhouse=./$wheelhouse ;; esac

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)

# 1. Python

new_enough() {
    "$1" -I -c 'import sys; sys.exit(sys.version_info < tuple(map(int, "@PYTHON@".split("."))))' \
        >/dev/null 2>&1
}

if [ -z "$venv" ] && [ -z "$python" ] && [ -n "${VIRTUAL_ENV:-}" ]; then
    venv=$VIRTUAL_ENV
fi
if [ -n "$python" ]; then
    new_enough "$python" || fail "$python is not a Python @PYTHON@ or newer." \
        "Name one that is with --python, or leave the option out."
elif [ -n "$venv" ] && new_enough "$venv/bin/python"; then
    python=$venv/bin/python
else
    for candidate in python3 python3.14 python3.13 python3.12 python3.11 python; do
        if new_enough "$candidate"; then
            python=$candidate
            break
        fi
    done
    [ -n "$python" ] || fail "Remit needs Python @PYTHON@ or newer; none was found on PATH." \
        "Install one, or name it: ./install.sh --root DIR --python /path/to/python3"
fi

# 2. The files, as the manifest has them

say "Checking the files ..."
"$python" -I - "$here" <<'PYTHON' || exit 1
import hashlib, json, os, sys

top = sys.argv[1]

def fail(what):
    sys.exit(f"error: {what}\n  next: Unpack CP_BOOTSTRAP.tar.gz again, into an empty directory; "
             "if that does not help, get the file again.")

try:
    with open(os.path.join(top, "BOOTSTRAP_MANIFEST.json"), "rb") as stream:
        listed = {one["path"]: one for one in json.load(stream)["files"]}
except OSError as error:
    fail(f"BOOTSTRAP_MANIFEST.json cannot be read: {error.strerror}.")
except (ValueError, KeyError, TypeError):
    fail("BOOTSTRAP_MANIFEST.json is damaged.")
for path, stated in listed.items():
    try:
        with open(os.path.join(top, *path.split("/")), "rb") as stream:
            data = stream.read()
    except OSError as error:
        fail(f"{path} cannot be read: {error.strerror}.")
    actual = hashlib.sha256(data).hexdigest()
    if actual != stated.get("sha256") or len(data) != stated.get("bytes"):
        fail(f"{path} is not the file that was packed: its SHA-256 is {actual}, "
             f"the manifest says {stated.get('sha256')}.")
for needed in ("install.sh", "@WHEEL@"):
    if needed not in listed:
        fail(f"BOOTSTRAP_MANIFEST.json does not name {needed}.")
try:
    for name in sorted(os.listdir(os.path.join(top, "packages"))):
        if f"packages/{name}" not in listed:
            fail(f"packages/{name} is not in the manifest.")
except OSError as error:
    fail(f"packages/ cannot be read: {error.strerror}.")
PYTHON
wheel=$here/@WHEEL@

if [ -z "$wheelhouse" ] && [ -d "$here/wheelhouse" ]; then
    wheelhouse=$here/wheelhouse
fi
[ -z "$wheelhouse" ] || [ -d "$wheelhouse" ] || fail "There is no directory $wheelhouse." \
    "Name one with wheels in it, or leave --wheelhouse out."

# 3. The virtual environment

mkdir -p -- "$root" || fail "$root cannot be made." "Name a directory that you may write to."
root=$(CDPATH='' cd -- "$root" && pwd -P)
[ -n "$venv" ] || venv=$root/venv
mark=$venv/.remit-install # there while the environment is incomplete

if [ -e "$mark" ] || ! [ -f "$venv/pyvenv.cfg" ]; then
    if ! [ -e "$mark" ] && [ -d "$venv" ] && [ -n "$(ls -A -- "$venv")" ]; then
        fail "$venv is not empty, and not a virtual environment." "Name another with --venv."
    fi
    say "Making a virtual environment in $venv ..."
    { mkdir -p -- "$venv" && : >"$mark"; } || fail "$venv cannot be written." \
        "Name a directory that you may write to with --venv."
    "$python" -I -m venv "$venv" >&2 || fail "$python could not make a virtual environment." \
        "Install its venv module (Debian, Ubuntu: apt install python3-venv), then run this again."
    rm -- "$mark"
fi
venv=$(CDPATH='' cd -- "$venv" && pwd -P)
inside=$venv/bin/python
new_enough "$inside" || fail "The virtual environment $venv has no Python @PYTHON@ or newer." \
    "Name another with --venv."
if "$inside" -I -c 'import json, sys
from importlib.metadata import PackageNotFoundError, distribution
try:
    origin = json.loads(distribution("remit").read_text("direct_url.json") or "{}")
except PackageNotFoundError:
    origin = {}
sys.exit(not origin.get("dir_info", {}).get("editable", False))'; then
    fail "$venv has an editable installation of Remit, which this would replace." \
        "Name another environment with --venv."
fi
"$inside" -I -m pip --version >/dev/null 2>&1 || fail "$venv has no pip." \
    "Put it in: $inside -m ensurepip --upgrade"

# 4. Remit and what it needs

pip() { "$inside" -I -m pip --disable-pip-version-check -qq "$@" >&2; }

from_source() { # pip's install command, from the wheelhouse or the index
    if [ -n "$wheelhouse" ]; then
        pip install --no-index --find-links "$wheelhouse" "$@"
    else
        pip install "$@"
    fi
}

say "Installing Remit @VERSION@ into $venv ..."
# What it needs first: where that fails, a Remit that is there goes on working.
if ! from_source "$wheel"; then
    if [ -n "$wheelhouse" ]; then
        fail "$wheelhouse does not have all that Remit needs (see above)." \
            "Fill it where there is a network, with the same system and Python: pip download --dest wheelhouse ./@WHEEL@"
    fi
    fail "What Remit needs could not be fetched (see above); is there a network?" \
        "Without one: where there is one, with the same system and Python, run: pip download --dest wheelhouse ./@WHEEL@ ; put wheelhouse/ beside install.sh, and run this again."
fi
# The same version may have been there with other bytes.
pip install --no-index --no-deps --force-reinstall "$wheel" ||
    fail "The wheel could not be installed (see above)." "Run this again."
if [ "$local_models" = yes ] && ! from_source "$wheel[local]" 2>/dev/null; then
    say "note: the runtime for models on this machine (xllamacpp) is not available here."
fi

# 5. The packages

say "Installing the packages into $root ..."
"$inside" -I -m remit bootstrap install --root "$root" --packages "$here/packages" $dev ||
    fail "The packages are not installed, or not every gate passed (see above)." \
        "Do what the message above says, then run this again; what is done already stays."

# 6. A model to talk to: a small one on this machine, where no key of another is set

model=no
if [ "$local_models" = yes ] && "$inside" -I -m remit model pull --if-needed --root "$root" >&2; then
    model=yes
fi

printf '\nRemit:  %s\nRoot:   %s\n' "$venv/bin/remit" "$root"
if [ "$model" = no ]; then
    printf 'No model is here: set ANTHROPIC_API_KEY or OPENAI_API_KEY; or have a small one on this machine:\n'
    printf '        "%s" model pull --if-needed --root "%s"\n' "$venv/bin/remit" "$root"
fi
printf 'Next:   "%s" chat --root "%s"\n' "$venv/bin/remit" "$root"
