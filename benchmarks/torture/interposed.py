"""Disk faults and false clocks for a process: a library that is compiled here and preloaded."""

from __future__ import annotations

import mmap
import os
import resource
import shutil
import struct
import subprocess
from collections.abc import Mapping
from pathlib import Path

NO_SPACE, IO_ERROR, SHORT, NO_SYNC, NO_FILES = 1, 2, 4, 8, 16
FAULTS = {
    "no space": NO_SPACE,
    "writes fail": IO_ERROR,
    "short writes": SHORT,
    "fsync fails": NO_SYNC,
    "no file descriptors": NO_FILES,
}
_VARIABLE = "TORTURE_PAGE"
_SMALL_FILE = 4096  # bytes: where there is no compiler, the limit that stands for a full disk

_SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile struct { int faults; int met; long long ahead_s; } *page;

__attribute__((constructor)) static void load(void) {
    const char *path = getenv("TORTURE_PAGE");
    int fd = path ? open(path, O_RDWR) : -1;
    if (fd < 0) return;
    void *at = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (at != MAP_FAILED) page = at;
}

#define REAL(name) static __typeof__(&name) real; if (!real) real = dlsym(RTLD_NEXT, #name)
static int on(int fault) { return page && (page->faults & fault) && ++page->met; }
static int file(int fd) {
    struct stat s;
    return fd > 2 && page && page->faults && !fstat(fd, &s) && S_ISREG(s.st_mode);
}
#define SPOIL(fd, n) \
    if (file(fd)) { \
        if (on(1)) { errno = ENOSPC; return -1; } \
        if (on(2)) { errno = EIO; return -1; } \
        if (n > 1 && on(4)) n /= 2; \
    }
ssize_t write(int fd, const void *b, size_t n) { REAL(write); SPOIL(fd, n) return real(fd, b, n); }
ssize_t pwrite(int fd, const void *b, size_t n, off_t at) {
    REAL(pwrite); SPOIL(fd, n) return real(fd, b, n, at);
}
ssize_t pwrite64(int fd, const void *b, size_t n, off64_t at) {
    REAL(pwrite64); SPOIL(fd, n) return real(fd, b, n, at);
}
#define NO_SYNC(fd) if (file(fd) && on(8)) { errno = EIO; return -1; }
int fsync(int fd) { REAL(fsync); NO_SYNC(fd) return real(fd); }
int fdatasync(int fd) { REAL(fdatasync); NO_SYNC(fd) return real(fd); }
#define NO_FD if (on(16)) { errno = EMFILE; return -1; }
#define MODE int mode = 0; if (flags & (O_CREAT | O_TMPFILE)) { \
    va_list a; va_start(a, flags); mode = va_arg(a, int); va_end(a); }
int open(const char *p, int flags, ...) { REAL(open); MODE NO_FD return real(p, flags, mode); }
int open64(const char *p, int flags, ...) { REAL(open64); MODE NO_FD return real(p, flags, mode); }
int openat(int d, const char *p, int flags, ...) {
    REAL(openat); MODE NO_FD return real(d, p, flags, mode);
}
int socket(int d, int t, int p) { REAL(socket); NO_FD return real(d, t, p); }
int accept(int fd, struct sockaddr *a, socklen_t *l) { REAL(accept); NO_FD return real(fd, a, l); }
int accept4(int fd, struct sockaddr *a, socklen_t *l, int f) {
    REAL(accept4); NO_FD return real(fd, a, l, f);
}

int clock_gettime(clockid_t id, struct timespec *t) {
    REAL(clock_gettime);
    int said = real(id, t);
    if (!said && page && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE))
        t->tv_sec += page->ahead_s;
    return said;
}
int gettimeofday(struct timeval *t, void *z) {
    REAL(gettimeofday);
    int said = real(t, z);
    if (!said && page && t) t->tv_sec += page->ahead_s;
    return said;
}
time_t time(time_t *t) {
    REAL(time);
    time_t now = real(0) + (page ? page->ahead_s : 0);
    if (t) *t = now;
    return now;
}
"""


def compiled(directory: Path) -> Path | None:
    """The library; ``None`` on a machine without a C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return None
    source, library = directory / "interposed.c", directory / "interposed.so"
    source.write_text(_SOURCE)
    command = [compiler, "-O1", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return library


class Interposed:
    """What goes wrong below one server, switched from outside.

    Args:
        directory: for the page that the server's processes share with this one.
        library: see :func:`compiled`; without it limits of the system stand for a full disk and
            for file descriptors, nothing for the rest.
    """

    def __init__(self, directory: Path, library: Path | None) -> None:
        path = directory / f"page-{os.urandom(4).hex()}"
        path.write_bytes(bytes(4096))
        with path.open("r+b") as file:
            self._page = mmap.mmap(file.fileno(), 4096)
        self._library = library
        self.environment: Mapping[str, str] = {}
        if library is not None:
            self.environment = {"LD_PRELOAD": str(library), _VARIABLE: str(path)}

    @property
    def met(self) -> int:
        """How many calls of the system a fault has met."""
        return int(struct.unpack_from("i", self._page, 4)[0])

    def spoil(self, faults: int, pids: list[int]) -> None:
        """Switch faults on; 0: off."""
        if self._library is not None:
            struct.pack_into("i", self._page, 0, faults)
            return
        for pid in pids:
            for limit, bit, low in (
                (resource.RLIMIT_FSIZE, NO_SPACE | IO_ERROR, _SMALL_FILE),
                (resource.RLIMIT_NOFILE, NO_FILES, 8),
            ):
                _, most = resource.prlimit(pid, limit)
                resource.prlimit(pid, limit, (low if faults & bit else most, most))

    def shift(self, seconds: int) -> None:
        """Set the wall clock so far ahead of the truth."""
        struct.pack_into("q", self._page, 8, seconds)
