#include "sim_disk.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arena.h"
#include "schedule.h"

#define MAPS    64
#define SYNC_NS 100000 /* a sync takes so long */

/* A part of a file that is mapped. Its bytes are the file's when the daemon has ended: nobody reads them before. */
struct map {
    int fd; /* its own descriptor */
    uint64_t offset;
    size_t len;
    void *memory;
};

#define BOOT_FILE "boot_id" /* stands for that of the kernel */

static struct disk {
    struct crash_fs *fs;
    uint64_t boots;
    struct map maps[MAPS];
} * disk;

static struct {
    bool frozen;
    unsigned one_in;
    uint64_t failures;
} faults;

static const struct fsops *below(void)
{
    return crash_fs_ops(disk->fs);
}

#define BELOW(name, ...) (below()->name(below()->ctx, __VA_ARGS__))

/* ---- mapped files ---- */

static void store_maps(void)
{
    for (int i = 0; i < MAPS; i++) {
        const struct map *map = &disk->maps[i];
        size_t n;
        if (map->memory && !faults.frozen)
            (void)BELOW(pwrite, map->fd, map->memory, map->len, map->offset, &n);
    }
}

/* ---- operations ---- */

static int enter(bool changes)
{
    static const int errors[] = {-EIO, -ENOSPC, -ENOMEM};
    schedule_point();
    if (faults.frozen)
        return -EIO;
    if (!changes || !faults.one_in || schedule_random() % faults.one_in)
        return 0;
    faults.failures++;
    return errors[schedule_random() % 3];
}

#define OPERATION(name, changes, parameters, arguments) \
    static int sim_##name parameters                    \
    {                                                   \
        int status = enter(changes);                    \
        (void)ctx;                                      \
        return status ? status : BELOW arguments;       \
    }

OPERATION(open, flags &FS_CREATE, (void *ctx, const char *path, unsigned flags, int *fd_out),
          (open, strcmp(path, "/proc/sys/kernel/random/boot_id") == 0 ? BOOT_FILE : path, flags, fd_out))
OPERATION(truncate, true, (void *ctx, int fd, uint64_t size), (truncate, fd, size))
OPERATION(stat, false, (void *ctx, const char *path, struct fs_stat *out), (stat, path, out))
OPERATION(mkdir, true, (void *ctx, const char *path), (mkdir, path))
OPERATION(unlink, true, (void *ctx, const char *path), (unlink, path))
OPERATION(rename, true, (void *ctx, const char *from, const char *to), (rename, from, to))
OPERATION(link, true, (void *ctx, const char *from, const char *to), (link, from, to))
OPERATION(list, false, (void *ctx, const char *path, fs_visit_fn *visit, void *visit_ctx),
          (list, path, visit, visit_ctx))
OPERATION(lock, false, (void *ctx, const char *path, int *fd_out, pid_t *owner_out), (lock, path, fd_out, owner_out))
OPERATION(is_at, false, (void *ctx, int fd, const char *path), (is_at, fd, path))
OPERATION(size, false, (void *ctx, int fd, uint64_t *size_out), (size, fd, size_out))

static int sim_close(void *ctx, int fd)
{
    (void)ctx;
    schedule_point();
    return faults.frozen ? 0 : BELOW(close, fd);
}

static int sim_pread(void *ctx, int fd, void *buf, size_t len, uint64_t offset, size_t *n_out)
{
    int status = enter(false);
    (void)ctx;
    return status ? status : BELOW(pread, fd, buf, len, offset, n_out);
}

/* A fault may come in the middle of a write. */
static int sim_pwrite(void *ctx, int fd, const void *buf, size_t len, uint64_t offset, size_t *n_out)
{
    int status = enter(true);
    (void)ctx;
    if (status && !faults.frozen && len > 1 && schedule_random() % 2)
        (void)BELOW(pwrite, fd, buf, len / 2, offset, n_out);
    return status ? status : BELOW(pwrite, fd, buf, len, offset, n_out);
}

static int sim_sync(void *ctx, int fd)
{
    int status = enter(true);
    (void)ctx;
    if (status && !faults.frozen)
        crash_fs_sync_failed(disk->fs, fd);
    if (status)
        return status;
    if (schedule_is_on())
        schedule_sleep(SYNC_NS);
    if (faults.frozen)
        return -EIO;
    return BELOW(sync, fd);
}

static int sim_sync_dir(void *ctx, const char *path)
{
    int status = enter(true);
    (void)ctx;
    return status ? status : BELOW(sync_dir, path);
}

static int sim_sync_all(void *ctx, int fd)
{
    int status = enter(true);
    (void)ctx;
    if (status == 0)
        store_maps();
    return status ? status : BELOW(sync_all, fd);
}

static int sim_map(void *ctx, int fd, uint64_t offset, size_t len, void **memory_out)
{
    int status = enter(true), i = 0;
    size_t n;
    (void)ctx;
    while (i < MAPS && disk->maps[i].memory)
        i++;
    if (status || i == MAPS)
        return status ? status : -ENOMEM;
    struct map *map = &disk->maps[i];
    *map = (struct map){crash_fs_dup(disk->fs, fd), offset, len, arena_malloc(len)};
    *memory_out = map->memory;
    status = BELOW(pread, map->fd, map->memory, len, offset, &n);
    memset((char *)map->memory + n, 0, len - n);
    return status;
}

static void sim_unmap(void *ctx, void *memory, size_t len)
{
    (void)ctx, (void)len;
    store_maps();
    for (int i = 0; i < MAPS; i++) {
        struct map *map = &disk->maps[i];
        if (map->memory != memory)
            continue;
        if (!faults.frozen)
            (void)BELOW(close, map->fd);
        arena_free(memory);
        map->memory = NULL;
    }
}

const struct fsops *__wrap_fsops_posix(void);

const struct fsops *__wrap_fsops_posix(void)
{
    static const struct fsops ops = {
        .open = sim_open,
        .close = sim_close,
        .pread = sim_pread,
        .pwrite = sim_pwrite,
        .size = sim_size,
        .truncate = sim_truncate,
        .map = sim_map,
        .unmap = sim_unmap,
        .sync = sim_sync,
        .stat = sim_stat,
        .mkdir = sim_mkdir,
        .unlink = sim_unlink,
        .rename = sim_rename,
        .link = sim_link,
        .list = sim_list,
        .sync_dir = sim_sync_dir,
        .sync_all = sim_sync_all,
        .lock = sim_lock,
        .is_at = sim_is_at,
    };
    return &ops;
}

/* ---- the disk ---- */

static void write_boot(void)
{
    char text[40];
    size_t n;
    int fd, len = snprintf(text, sizeof(text), "%036llu", (unsigned long long)disk->boots);
    if (BELOW(open, BOOT_FILE, FS_CREATE | FS_WRITE, &fd) != 0 || BELOW(pwrite, fd, text, (size_t)len, 0, &n) != 0)
        abort();
    (void)BELOW(close, fd);
}

void sim_disk_create(void)
{
    disk = arena_calloc(1, sizeof(*disk));
    disk->fs = crash_fs_create();
    write_boot();
    faults.frozen = false;
    faults.one_in = 0;
}

void sim_disk_freeze(void)
{
    store_maps();
    faults.frozen = true;
}

void sim_disk_crash(enum crash_mode mode, uint64_t seed)
{
    if (!faults.frozen)
        store_maps();
    if (mode == CRASH_KEEP_ALL) {
        crash_fs_killed(disk->fs);
    } else {
        struct crash_fs *after = crash_fs_after(disk->fs, mode, seed);
        crash_fs_destroy(disk->fs);
        disk->fs = after;
        disk->boots++;
        write_boot();
    }
    memset(disk->maps, 0, sizeof(disk->maps)); /* memory of a daemon that has ended */
    faults.frozen = false;
}

void sim_disk_fail(unsigned one_in)
{
    faults.one_in = one_in;
}

uint64_t sim_disk_failures(void)
{
    return faults.failures;
}
