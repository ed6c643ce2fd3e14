/* Notes what a power cut would undo: a library that is preloaded into a process.

   Everything below $POWER_UNDER that a process writes, creates, renames or removes is noted in
   $POWER_JOURNAL, with what was there before, and so is every fsync. What no fsync confirmed can
   then be undone. A file that is replaced or removed keeps a link in $POWER_KEEP.

   $POWER_KILL_AT=N kills the process before its N-th noted change. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define PAGE 4096
#define REAL(name) static __typeof__(&name) real; if (!real) real = dlsym(RTLD_NEXT, #name)

static const char *under, *journal, *keep;
static size_t under_length;
static long kill_at = -1, changes, kept;
static int journal_fd = -1;
static pid_t journal_pid;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void forked(void) { pthread_mutex_init(&mutex, NULL); }

__attribute__((constructor)) static void load(void) {
    /* Copies: PostgreSQL writes its processes' titles over the environment. */
    if (!getenv("POWER_UNDER") || !getenv("POWER_JOURNAL") || !getenv("POWER_KEEP")) return;
    under = strdup(getenv("POWER_UNDER"));
    journal = strdup(getenv("POWER_JOURNAL"));
    keep = strdup(getenv("POWER_KEEP"));
    under_length = strlen(under);
    if (getenv("POWER_KILL_AT")) kill_at = atol(getenv("POWER_KILL_AT"));
    pthread_atfork(NULL, NULL, forked);
}

/* The journal has one order for all processes and threads: the lock spans a change and its note. */
static void take(void) {
    pthread_mutex_lock(&mutex);
    if (journal_pid != getpid()) { /* A fork shares its parent's lock. */
        int low = syscall(SYS_openat, AT_FDCWD, journal, O_WRONLY | O_APPEND | O_CLOEXEC, 0);
        journal_fd = syscall(SYS_fcntl, low, F_DUPFD_CLOEXEC, 400);
        if (journal_fd < 0) journal_fd = low;
        else syscall(SYS_close, low);
        journal_pid = getpid();
    }
    while (syscall(SYS_flock, journal_fd, LOCK_EX) < 0 && errno == EINTR) {}
}

static void give(void) {
    int e = errno;
    syscall(SYS_flock, journal_fd, LOCK_UN);
    pthread_mutex_unlock(&mutex);
    errno = e;
}

static void change(void) {
    if (kill_at >= 0 && changes++ == kill_at) raise(SIGKILL);
}

static void note(const void *data, size_t length) {
    if (syscall(SYS_write, journal_fd, data, length) != (long)length) abort();
}

static void note_line(const char *format, ...) {
    char line[3 * PATH_MAX];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    note(line, length);
}

static int is_below(const char *path) {
    return under && !strncmp(path, under, under_length) &&
           (path[under_length] == '/' || !path[under_length]);
}

static int name_of(int fd, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    long length = syscall(SYS_readlinkat, AT_FDCWD, link, path, PATH_MAX - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return !strstr(path, " (deleted)");
}

/* Whether the file is one whose changes are noted; fills in what it is. */
static int is_noted(int fd, struct stat *about) {
    char path[PATH_MAX];
    int e = errno;
    int noted = under && fd > 2 && !fstat(fd, about) &&
                (S_ISREG(about->st_mode) || S_ISDIR(about->st_mode)) && name_of(fd, path) &&
                is_below(path);
    errno = e;
    return noted;
}

static int absolute(int directory, const char *path, char *whole) {
    char base[PATH_MAX];
    if (!under) return 0;
    if (path[0] == '/') snprintf(whole, PATH_MAX, "%s", path);
    else {
        if (directory == AT_FDCWD) { if (!getcwd(base, sizeof base)) return 0; }
        else if (!name_of(directory, base)) return 0;
        if (snprintf(whole, PATH_MAX, "%s/%s", base, path) >= PATH_MAX) return 0;
    }
    return is_below(whole);
}

static int exists(const char *path, struct stat *about) {
    return !fstatat(AT_FDCWD, path, about, AT_SYMLINK_NOFOLLOW);
}

/* Note the pages that a change from `at` of `length` bytes will alter, as they are now. */
static void note_pages(int fd, const struct stat *about, off_t at, size_t length) {
    char page[PAGE];
    int readable = fd, own = -1;
    if ((syscall(SYS_fcntl, fd, F_GETFL) & O_ACCMODE) == O_WRONLY) {
        /* To close a descriptor of a file gives up the locks that the process has on it; who
           opens a file to write only has none. */
        char link[64];
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        readable = own = syscall(SYS_openat, AT_FDCWD, link, O_RDONLY | O_CLOEXEC, 0);
    }
    note_line("Z\t%lu\t%lu\t%ld\n", (unsigned long)about->st_dev, (unsigned long)about->st_ino,
              (long)about->st_size);
    for (off_t index = at / PAGE; length && index <= (off_t)(at + length - 1) / PAGE; index++) {
        if (index * PAGE >= about->st_size) break;
        long got = syscall(SYS_pread64, readable, page, PAGE, index * PAGE);
        if (got <= 0) break;
        note_line("P\t%lu\t%lu\t%ld\t%ld\n", (unsigned long)about->st_dev,
                  (unsigned long)about->st_ino, (long)index, got);
        note(page, got);
    }
    if (own >= 0) syscall(SYS_close, own);
}

static void note_synced(int fd, const struct stat *about) {
    char path[PATH_MAX];
    if (S_ISDIR(about->st_mode)) {
        if (name_of(fd, path)) note_line("D\t%s\n", path);
    } else
        note_line("S\t%lu\t%lu\n", (unsigned long)about->st_dev, (unsigned long)about->st_ino);
}

/* A link that keeps what a name stands for; empty if there is nothing to keep. */
static const char *kept_link(const char *path, char *link) {
    struct stat about;
    link[0] = 0;
    if (!exists(path, &about) || S_ISDIR(about.st_mode)) return link;
    snprintf(link, PATH_MAX, "%s/%d-%ld", keep, getpid(), kept++);
    if (syscall(SYS_linkat, AT_FDCWD, path, AT_FDCWD, link, 0) < 0) link[0] = 0;
    return link;
}

#define WRITES(type, name, parameters, arguments, at, length) \
    type name parameters { \
        REAL(name); \
        struct stat about; \
        if (!is_noted(fd, &about)) return real arguments; \
        take(); \
        change(); \
        fstat(fd, &about); \
        note_pages(fd, &about, at, length); \
        type done = real arguments; \
        if (syscall(SYS_fcntl, fd, F_GETFL) & O_DSYNC) note_synced(fd, &about); \
        give(); \
        return done; \
    }
#define HERE ((syscall(SYS_fcntl, fd, F_GETFL) & O_APPEND) ? about.st_size : lseek(fd, 0, SEEK_CUR))

static size_t total(const struct iovec *parts, int count) {
    size_t sum = 0;
    for (int i = 0; i < count; i++) sum += parts[i].iov_len;
    return sum;
}

WRITES(ssize_t, write, (int fd, const void *b, size_t n), (fd, b, n), HERE, n)
WRITES(ssize_t, pwrite, (int fd, const void *b, size_t n, off_t at), (fd, b, n, at), at, n)
WRITES(ssize_t, pwrite64, (int fd, const void *b, size_t n, off64_t at), (fd, b, n, at), at, n)
WRITES(ssize_t, writev, (int fd, const struct iovec *v, int n), (fd, v, n), HERE, total(v, n))
WRITES(ssize_t, pwritev, (int fd, const struct iovec *v, int n, off_t at), (fd, v, n, at), at,
       total(v, n))
WRITES(ssize_t, pwritev64, (int fd, const struct iovec *v, int n, off64_t at), (fd, v, n, at), at,
       total(v, n))
WRITES(int, posix_fallocate, (int fd, off_t at, off_t n), (fd, at, n), at, 0)
WRITES(int, posix_fallocate64, (int fd, off64_t at, off64_t n), (fd, at, n), at, 0)
WRITES(int, fallocate, (int fd, int mode, off_t at, off_t n), (fd, mode, at, n), at, n)
WRITES(ssize_t, sendfile, (int fd, int from, off_t *o, size_t n), (fd, from, o, n), HERE, n)
WRITES(ssize_t, sendfile64, (int fd, int from, off64_t *o, size_t n), (fd, from, o, n), HERE, n)
WRITES(int, ftruncate, (int fd, off_t n), (fd, n), n, about.st_size > n ? about.st_size - n : 0)
WRITES(int, ftruncate64, (int fd, off64_t n), (fd, n), n, about.st_size > n ? about.st_size - n : 0)

int truncate(const char *path, off_t length) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    int done = ftruncate(fd, length), e = errno;
    close(fd);
    errno = e;
    return done;
}

ssize_t copy_file_range(int from, off64_t *a, int fd, off64_t *b, size_t n, unsigned flags) {
    REAL(copy_file_range);
    struct stat about;
    if (!is_noted(fd, &about)) return real(from, a, fd, b, n, flags);
    errno = EXDEV; /* Callers then write. */
    return -1;
}

#define SYNCS(name) \
    int name(int fd) { \
        REAL(name); \
        struct stat about; \
        if (!is_noted(fd, &about)) return real(fd); \
        take(); \
        change(); \
        int done = real(fd); \
        if (!done) note_synced(fd, &about); \
        give(); \
        return done; \
    }
SYNCS(fsync)
SYNCS(fdatasync)

static int opened(int (*real)(int, const char *, int, ...), int directory, const char *path,
                  int flags, int mode) {
    char whole[PATH_MAX];
    struct stat about;
    if (!(flags & (O_CREAT | O_TRUNC)) || (flags & O_TMPFILE) == O_TMPFILE ||
        !absolute(directory, path, whole))
        return real(directory, path, flags, mode);
    take();
    int was_there = exists(whole, &about);
    if (was_there && (flags & O_TRUNC) && S_ISREG(about.st_mode) && about.st_size) {
        change();
        int old = syscall(SYS_openat, AT_FDCWD, whole, O_RDONLY | O_CLOEXEC, 0);
        if (old >= 0) {
            note_pages(old, &about, 0, about.st_size);
            syscall(SYS_close, old);
        }
    } else if (!was_there)
        change();
    int fd = real(directory, path, flags, mode);
    if (fd >= 0 && !was_there) note_line("C\t%s\n", whole);
    give();
    return fd;
}

#define MODE int mode = 0; if (flags & (O_CREAT | O_TMPFILE)) { \
    va_list a; va_start(a, flags); mode = va_arg(a, int); va_end(a); }
int openat(int d, const char *p, int flags, ...) {
    REAL(openat); MODE return opened(real, d, p, flags, mode);
}
int openat64(int d, const char *p, int flags, ...) {
    REAL(openat64); MODE return opened(real, d, p, flags, mode);
}
int open(const char *p, int flags, ...) {
    REAL(openat); MODE return opened(real, AT_FDCWD, p, flags, mode);
}
int open64(const char *p, int flags, ...) {
    REAL(openat64); MODE return opened(real, AT_FDCWD, p, flags, mode);
}

int renameat2(int d, const char *from, int e, const char *to, unsigned flags) {
    REAL(renameat2);
    char a[PATH_MAX], b[PATH_MAX], link[PATH_MAX];
    int below = absolute(d, from, a);
    if (!absolute(e, to, b) || !below) return real(d, from, e, to, flags);
    take();
    change();
    kept_link(b, link);
    int done = real(d, from, e, to, flags);
    if (!done) note_line("R\t%s\t%s\t%s\n", a, b, link);
    give();
    return done;
}
int renameat(int d, const char *a, int e, const char *b) { return renameat2(d, a, e, b, 0); }
int rename(const char *a, const char *b) { return renameat2(AT_FDCWD, a, AT_FDCWD, b, 0); }

int unlinkat(int d, const char *path, int flags) {
    REAL(unlinkat);
    char whole[PATH_MAX], link[PATH_MAX];
    if (!absolute(d, path, whole)) return real(d, path, flags);
    take();
    change();
    if (!(flags & AT_REMOVEDIR)) kept_link(whole, link);
    int done = real(d, path, flags);
    if (!done) {
        if (flags & AT_REMOVEDIR) note_line("X\t%s\n", whole);
        else note_line("U\t%s\t%s\n", whole, link);
    }
    give();
    return done;
}
int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }

#define MAKES(name, parameters, arguments, directory, path, kind) \
    int name parameters { \
        REAL(name); \
        char whole[PATH_MAX]; \
        if (!absolute(directory, path, whole)) return real arguments; \
        take(); \
        change(); \
        int done = real arguments; \
        if (!done) note_line(kind "\t%s\n", whole); \
        give(); \
        return done; \
    }
MAKES(mkdirat, (int d, const char *p, mode_t m), (d, p, m), d, p, "M")
MAKES(mkdir, (const char *p, mode_t m), (p, m), AT_FDCWD, p, "M")
MAKES(linkat, (int a, const char *p, int b, const char *q, int f), (a, p, b, q, f), b, q, "C")
MAKES(link, (const char *p, const char *q), (p, q), AT_FDCWD, q, "C")
MAKES(symlinkat, (const char *t, int d, const char *p), (t, d, p), d, p, "C")
MAKES(symlink, (const char *t, const char *p), (t, p), AT_FDCWD, p, "C")
