/* Fails chosen system calls of this process, on files under one folder. Loaded with LD_PRELOAD.
 *
 * Calls on files under the folder of shim_watch() are counted by kind from shim_arm() to shim_disarm(). The n-th call of the armed kind gets the armed action: a positive
 * errno fails it, SHORT carries out half of a read or write, TORN writes half and then fails with EIO. With `lasting`
 * every later call of that kind fails too; after a SHORT write those fail with ENOSPC, as on a disk that fills up.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum kind { OPEN, READ, WRITE, SYNC, TRUNCATE, RENAME, UNLINK, MAP, LOCK, STAT, LIST, KINDS };
enum { SHORT = -1, TORN = -2 };

static char folder[4096];
static _Atomic long counts[KINDS];
static _Atomic long injected;
static _Atomic int counting, armed = -1, action, lasting;
static _Atomic long target;
static _Atomic char ours[1 << 16]; /* descriptors that were opened on paths under the folder */

void shim_watch(const char *path) { snprintf(folder, sizeof folder, "%s", path); }

void shim_arm(int kind, long nth, int what, int for_ever) {
    for (int one = 0; one < KINDS; one++) counts[one] = 0;
    injected = 0;
    target = nth;
    action = what;
    lasting = for_ever;
    armed = kind;
    counting = 1;
}

void shim_disarm(void) { armed = -1, counting = 0; }
long shim_count(int kind) { return counts[kind]; }
long shim_injected(void) { return injected; }

/* Under the folder, or one of SQLite's temporary files, which VACUUM and large sorts use. */
static int under(const char *path) {
    return folder[0] && path && (!strncmp(path, folder, strlen(folder)) || strstr(path, "/etilqs_"));
}
static int held(int fd) { return fd >= 0 && fd < (int)sizeof ours && ours[fd]; }
static int note(int fd, const char *path) {
    if (fd >= 0 && fd < (int)sizeof ours) ours[fd] = under(path);
    return fd;
}

/* The action for this call, 0 to carry it out. */
static int due(enum kind kind) {
    if (!counting) return 0;
    long number = ++counts[kind];
    if (armed != (int)kind || number < target || (number > target && !lasting)) return 0;
    injected++;
    return number > target && action < 0 ? ENOSPC : action;
}

#define REAL(name) \
    static __typeof__(&name) real; \
    if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)
#define FAIL_IF(concerned, kind, failed) \
    do { \
        int what = (concerned) ? due(kind) : 0; \
        if (what > 0) { errno = what; return failed; } \
    } while (0)

#define OPENS(name) \
    int name(const char *path, int flags, ...) { \
        REAL(name); \
        va_list rest; \
        va_start(rest, flags); \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0; \
        va_end(rest); \
        FAIL_IF(under(path), OPEN, -1); \
        return note(real(path, flags, mode), path); \
    }
OPENS(open)
OPENS(open64)

#define OPENS_AT(name) \
    int name(int at, const char *path, int flags, ...) { \
        REAL(name); \
        va_list rest; \
        va_start(rest, flags); \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0; \
        va_end(rest); \
        FAIL_IF(under(path), OPEN, -1); \
        return note(real(at, path, flags, mode), path); \
    }
OPENS_AT(openat)
OPENS_AT(openat64)

int close(int fd) {
    REAL(close);
    note(fd, NULL);
    return real(fd);
}

/* Half of it, for SHORT and TORN. */
#define HALVED(size) ((size) > 1 ? (size) / 2 : (size))
#define MOVES(name, constness, kind, arguments, ...) \
    ssize_t name(int fd, constness void *buffer, size_t size arguments) { \
        REAL(name); \
        int what = held(fd) ? due(kind) : 0; \
        if (what > 0) { errno = what; return -1; } \
        if (what < 0) size = HALVED(size); \
        ssize_t moved = real(fd, buffer, size __VA_ARGS__); \
        if (what == TORN && moved >= 0) { errno = EIO; return -1; } \
        return moved; \
    }
#define NOTHING
#define OFFSET , off_t offset
MOVES(read, , READ, NOTHING)
MOVES(write, const, WRITE, NOTHING)
MOVES(pread, , READ, OFFSET, , offset)
MOVES(pread64, , READ, OFFSET, , offset)
MOVES(pwrite, const, WRITE, OFFSET, , offset)
MOVES(pwrite64, const, WRITE, OFFSET, , offset)

#define ON_DESCRIPTOR(name, kind) \
    int name(int fd) { REAL(name); FAIL_IF(held(fd), kind, -1); return real(fd); }
ON_DESCRIPTOR(fsync, SYNC)
ON_DESCRIPTOR(fdatasync, SYNC)

#define CUTS(name) \
    int name(int fd, off_t size) { REAL(name); FAIL_IF(held(fd), TRUNCATE, -1); return real(fd, size); }
CUTS(ftruncate)
CUTS(ftruncate64)

#define RESERVES(name) /* answers with the error, not with -1 */ \
    int name(int fd, off_t from, off_t size) { \
        REAL(name); \
        int what = held(fd) ? due(TRUNCATE) : 0; \
        return what > 0 ? what : real(fd, from, size); \
    }
RESERVES(posix_fallocate)
RESERVES(posix_fallocate64)

#define TWO_PATHS(name, kind) \
    int name(const char *from, const char *to) { REAL(name); FAIL_IF(under(from), kind, -1); return real(from, to); }
TWO_PATHS(rename, RENAME)
TWO_PATHS(link, RENAME)
int renameat(int at, const char *from, int there, const char *to) {
    REAL(renameat);
    FAIL_IF(under(from), RENAME, -1);
    return real(at, from, there, to);
}
int unlink(const char *path) {
    REAL(unlink);
    FAIL_IF(under(path), UNLINK, -1);
    return real(path);
}
int unlinkat(int at, const char *path, int flags) {
    REAL(unlinkat);
    FAIL_IF(under(path), UNLINK, -1);
    return real(at, path, flags);
}
int mkdir(const char *path, mode_t mode) {
    REAL(mkdir);
    FAIL_IF(under(path), OPEN, -1);
    return real(path, mode);
}
DIR *opendir(const char *path) {
    REAL(opendir);
    FAIL_IF(under(path), LIST, NULL);
    return real(path);
}

#define MAPS(name) \
    void *name(void *where, size_t size, int protection, int flags, int fd, off_t offset) { \
        REAL(name); \
        FAIL_IF(!(flags & MAP_ANONYMOUS) && held(fd), MAP, MAP_FAILED); \
        return real(where, size, protection, flags, fd, offset); \
    }
MAPS(mmap)
MAPS(mmap64)

#define LOCKS(name) \
    int name(int fd, int command, ...) { \
        REAL(name); \
        va_list rest; \
        va_start(rest, command); \
        void *argument = va_arg(rest, void *); \
        va_end(rest); \
        int locking = command == F_SETLK && argument && ((struct flock *)argument)->l_type != F_UNLCK; \
        FAIL_IF(locking && held(fd), LOCK, -1); \
        return real(fd, command, argument); \
    }
LOCKS(fcntl)
LOCKS(fcntl64)

#define LOOKS(name, answer) \
    int name(const char *path, struct answer *found) { \
        REAL(name); \
        FAIL_IF(under(path), STAT, -1); \
        return real(path, found); \
    }
LOOKS(stat, stat)
LOOKS(lstat, stat)
LOOKS(stat64, stat64)
LOOKS(lstat64, stat64)
int fstat64(int fd, struct stat64 *found) {
    REAL(fstat64);
    FAIL_IF(held(fd), STAT, -1);
    return real(fd, found);
}
