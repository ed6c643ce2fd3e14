#!/bin/sh
# backup.sh DIRECTORY: a copy of a root on SQLite, made while calls run, as DIRECTORY/TIME.
# The copy is a root of its own: `remit ledger verify --root DIRECTORY/TIME` reads it.
# Needs REMIT_ROOT, and remit and its Python in /opt/remit/bin or on the PATH. Run it as the user whose root it is.
set -eu
umask 077
PATH="/opt/remit/bin:$PATH" # before /usr/local/bin/remit, which is for root
to="${1:?where to, please}/$(date -u +%Y%m%dT%H%M%SZ)"
mkdir -p "$1"
mkdir "$to.part" # fails if another backup began in the same second
# First the files, then the database: so the copy's head, HOT/keys/ledger.head, is never newer
# than its ledger, and the copy opens.
tar -C "${REMIT_ROOT:?}" --exclude='./ledger.db*' -cf - . | tar -C "$to.part" -xf -
"${PYTHON:-python3}" - "$REMIT_ROOT/ledger.db" "$to.part/ledger.db" <<'PYTHON'
import sqlite3, sys
source = sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True)
copy = sqlite3.connect(sys.argv[2])
source.backup(copy)
copy.close()
PYTHON
remit ledger verify --root "$to.part"
mv "$to.part" "$to"
# To be kept elsewhere, with the auditor: it shows after a restore what is missing.
remit ledger checkpoint --out "$to.checkpoint"
echo "$to"
