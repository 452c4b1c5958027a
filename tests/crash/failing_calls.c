/* Preloaded under a writer: the k-th sync, write or read of a store's file fails, as a broken disk does.
   Unlike a VFS of our own this shows what SQLite itself makes of it, errors it keeps quiet about
   included. The writer sets the variables through ctypes after it forked. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

int reverie_sync_at = 0;   /* which sync fails, counted from 1; 0: none */
int reverie_write_at = 0;
int reverie_read_at = 0;
int reverie_errno = EIO;
int reverie_lasting = 0;   /* every later one fails as well */
int reverie_database = 0;  /* only the database itself, not its write-ahead log */
int reverie_fired = 0;
static int syncs, writes, reads;

static int ours(int fd) {
  char link[64], path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t n = readlink(link, path, sizeof path - 1);
  if (n < 0) return 0;
  path[n] = 0;
  const char *name = strrchr(path, '/');
  if (name == NULL || strncmp(name, "/store.db", 9) != 0) return 0;
  return name[9] == 0 || (!reverie_database && strcmp(name + 9, "-lock") != 0);
}

static int fails(int fd, int *seen, int at) {
  if (!at || !ours(fd)) return 0;
  ++*seen;
  if (*seen != at && !(reverie_lasting && *seen > at)) return 0;
  ++reverie_fired;
  errno = reverie_errno;
  return 1;
}

int fsync(int fd) {
  static int (*real)(int);
  if (!real) real = dlsym(RTLD_NEXT, "fsync");
  return fails(fd, &syncs, reverie_sync_at) ? -1 : real(fd);
}

int fdatasync(int fd) {
  static int (*real)(int);
  if (!real) real = dlsym(RTLD_NEXT, "fdatasync");
  return fails(fd, &syncs, reverie_sync_at) ? -1 : real(fd);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t offset) {
  static ssize_t (*real)(int, const void *, size_t, off64_t);
  if (!real) real = dlsym(RTLD_NEXT, "pwrite64");
  return fails(fd, &writes, reverie_write_at) ? -1 : real(fd, data, size, offset);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t offset) {
  static ssize_t (*real)(int, const void *, size_t, off_t);
  if (!real) real = dlsym(RTLD_NEXT, "pwrite");
  return fails(fd, &writes, reverie_write_at) ? -1 : real(fd, data, size, offset);
}

ssize_t pread64(int fd, void *data, size_t size, off64_t offset) {
  static ssize_t (*real)(int, void *, size_t, off64_t);
  if (!real) real = dlsym(RTLD_NEXT, "pread64");
  return fails(fd, &reads, reverie_read_at) ? -1 : real(fd, data, size, offset);
}

ssize_t pread(int fd, void *data, size_t size, off_t offset) {
  static ssize_t (*real)(int, void *, size_t, off_t);
  if (!real) real = dlsym(RTLD_NEXT, "pread");
  return fails(fd, &reads, reverie_read_at) ? -1 : real(fd, data, size, offset);
}
