/* The crash part of fault_fs.h.
 *
 * Inodes are files or directories; a name is (directory, text) and represents an inode. There are two tables of names:
 * as they are now, and as they are on disk. A change of a name is applied to the first at once and put on a list; a
 * sync of its directory applies it to the second. A file likewise has its bytes now and its bytes on disk, and the
 * range in which they may differ. */
#include "fault_fs.h"

#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "crash_names.h"

#define MAX_FDS     256
#define MAX_CHANGES 4096
#define SECTOR      512
#define PAGE        4096
#define KEPT_MEMORY (32 << 20)
#define ROOM        (((size_t)4 << 20) - 64)

struct bytes {
    unsigned char *ptr;
    size_t len;
};

struct inode {
    bool used;
    bool directory;
    bool lost; /* a sync has failed: a later one need not write the data of this one */
    struct bytes now;
    struct bytes disk;
    size_t dirty_from, dirty_to;
};

struct crash_fs {
    struct fsops ops;
    struct names now;
    struct names disk;
    struct inode *inodes;
    int ninodes;
    int nfree;        /* unused among them, at most */
    int fds[MAX_FDS]; /* inode, -1: free */
    int lock_fd;
    struct change changes[MAX_CHANGES];
    size_t nchanges;
};

/* A long file has room to grow: it is written piece by piece, and would be copied each time. */
static size_t room_for(size_t len)
{
    return len < ROOM / 16 ? len + 1 : len / ROOM * ROOM + ROOM;
}

static void copy_bytes(struct bytes *to, const struct bytes *from)
{
    unsigned char *ptr = malloc(room_for(from->len));

    crash_demand(ptr != NULL, "out of memory");
    if (from->len > 0)
        memcpy(ptr, from->ptr, from->len);
    free(to->ptr);
    *to = (struct bytes){ptr, from->len};
}

/* ---- inodes and names ---- */

static void do_change(struct crash_fs *fs, const char *from, const char *to, int inode)
{
    struct change *change = &fs->changes[fs->nchanges++];

    crash_demand(fs->nchanges < MAX_CHANGES, "too many changes without a sync");
    *change = (struct change){.inode = inode};
    crash_demand(!from || names_resolve(&fs->now, from, &change->from), "a change without a directory");
    crash_demand(!to || names_resolve(&fs->now, to, &change->to), "a change without a directory");
    names_apply(&fs->now, change);
}

/* Frees the unreachable inodes. */
static void collect(struct crash_fs *fs)
{
    char *reached = calloc((size_t)fs->ninodes + 1, 1);

    crash_demand(reached != NULL, "out of memory");
    reached[CRASH_ROOT] = 1;
    for (size_t i = 0; i < fs->now.count; i++)
        reached[fs->now.at[i].inode] = reached[fs->now.at[i].dir] = 1;
    for (size_t i = 0; i < fs->disk.count; i++)
        reached[fs->disk.at[i].inode] = reached[fs->disk.at[i].dir] = 1;
    for (size_t i = 0; i < fs->nchanges; i++)
        reached[fs->changes[i].inode] = reached[fs->changes[i].from.dir] = reached[fs->changes[i].to.dir] = 1;
    for (int i = 0; i < MAX_FDS; i++)
        reached[fs->fds[i] >= 0 ? fs->fds[i] : CRASH_ROOT] = 1;
    fs->nfree = 0;
    for (int i = 0; i < fs->ninodes; i++) {
        if (reached[i])
            continue;
        free(fs->inodes[i].now.ptr);
        free(fs->inodes[i].disk.ptr);
        fs->inodes[i] = (struct inode){.used = false};
        fs->nfree++;
    }
    free(reached);
}

static int new_inode(struct crash_fs *fs, bool directory)
{
    int at = 0;

    if (fs->nfree == 0) {
        collect(fs);
        if (fs->nfree <= fs->ninodes / 2) { /* so that collecting is worthwhile */
            int more = fs->ninodes + 64;
            fs->inodes = realloc(fs->inodes, (size_t)(fs->ninodes + more) * sizeof(*fs->inodes));
            crash_demand(fs->inodes != NULL, "out of memory");
            memset(fs->inodes + fs->ninodes, 0, (size_t)more * sizeof(*fs->inodes));
            fs->ninodes += more;
            fs->nfree += more;
        }
    }
    while (fs->inodes[at].used)
        at++;
    fs->nfree--;
    fs->inodes[at] = (struct inode){.used = true, .directory = directory};
    return at;
}

static bool is_parent(const char *path)
{
    size_t len = strlen(path);

    return len >= 3 && strcmp(path + len - 3, "/..") == 0;
}

/* ---- operations ---- */

static struct inode *by_fd(struct crash_fs *fs, int fd)
{
    crash_demand(fd >= 0 && fd < MAX_FDS && fs->fds[fd] >= 0, "a descriptor that is not open");
    return &fs->inodes[fs->fds[fd]];
}

static int take_fd(struct crash_fs *fs, int inode)
{
    int fd = 0;

    while (fd < MAX_FDS && fs->fds[fd] >= 0)
        fd++;
    crash_demand(fd < MAX_FDS, "too many open files");
    fs->fds[fd] = inode;
    return fd;
}

static void resize(struct bytes *bytes, size_t len)
{
    unsigned char *ptr = bytes->ptr;

    if (!ptr || room_for(len) != room_for(bytes->len))
        ptr = realloc(ptr, room_for(len));
    crash_demand(ptr != NULL, "out of memory");
    if (len > bytes->len)
        memset(ptr + bytes->len, 0, len - bytes->len);
    *bytes = (struct bytes){ptr, len};
}

static void touch(struct inode *inode, size_t from, size_t to)
{
    bool clean = inode->dirty_from >= inode->dirty_to;

    inode->dirty_from = clean || from < inode->dirty_from ? from : inode->dirty_from;
    inode->dirty_to = clean || to > inode->dirty_to ? to : inode->dirty_to;
}

static void set_size(struct inode *inode, size_t len)
{
    size_t was = inode->now.len;

    resize(&inode->now, len);
    touch(inode, was < len ? was : len, was < len ? len : was);
}

/* The present state is on disk. */
static void settle(struct inode *inode)
{
    size_t to = inode->dirty_to < inode->now.len ? inode->dirty_to : inode->now.len;

    if (inode->lost)
        return;
    if (inode->disk.len != inode->now.len)
        resize(&inode->disk, inode->now.len);
    if (inode->dirty_from < to)
        memcpy(inode->disk.ptr + inode->dirty_from, inode->now.ptr + inode->dirty_from, to - inode->dirty_from);
    inode->dirty_from = inode->dirty_to = 0;
}

static int crash_open(void *ctx, const char *path, unsigned flags, int *fd_out)
{
    struct crash_fs *fs = ctx;
    struct name *name = names_find(&fs->now, path);

    if (!name && (!(flags & FS_CREATE) || !names_has_dir(&fs->now, path)))
        return -ENOENT;
    if (name && (flags & FS_EXCLUSIVE))
        return -EEXIST;
    if (name && fs->inodes[name->inode].directory && (flags & FS_WRITE))
        return -EISDIR;
    if (!name) {
        do_change(fs, NULL, path, new_inode(fs, false));
        name = names_find(&fs->now, path);
    }
    if (flags & FS_TRUNCATE)
        set_size(&fs->inodes[name->inode], 0);
    *fd_out = take_fd(fs, name->inode);
    return 0;
}

int crash_fs_dup(struct crash_fs *fs, int fd)
{
    by_fd(fs, fd);
    return take_fd(fs, fs->fds[fd]);
}

static int crash_close(void *ctx, int fd)
{
    struct crash_fs *fs = ctx;

    by_fd(fs, fd);
    fs->fds[fd] = -1;
    if (fs->lock_fd == fd)
        fs->lock_fd = -1;
    return 0;
}

static int crash_pread(void *ctx, int fd, void *buf, size_t len, uint64_t offset, size_t *n_out)
{
    struct bytes *now = &by_fd(ctx, fd)->now;
    size_t n = offset < now->len ? now->len - (size_t)offset : 0;

    n = n < len ? n : len;
    if (n > 0)
        memcpy(buf, now->ptr + offset, n);
    *n_out = n;
    return 0;
}

static int crash_pwrite(void *ctx, int fd, const void *buf, size_t len, uint64_t offset, size_t *n_out)
{
    struct inode *inode = by_fd(ctx, fd);

    if (offset + len > inode->now.len)
        set_size(inode, (size_t)offset + len);
    if (len > 0) {
        memcpy(inode->now.ptr + offset, buf, len);
        touch(inode, (size_t)offset, (size_t)offset + len);
    }
    *n_out = len;
    return 0;
}

static int crash_size(void *ctx, int fd, uint64_t *size_out)
{
    struct inode *inode = by_fd(ctx, fd);

    if (inode->directory)
        return -EISDIR;
    *size_out = inode->now.len;
    return 0;
}

static int crash_truncate(void *ctx, int fd, uint64_t size)
{
    set_size(by_fd(ctx, fd), (size_t)size);
    return 0;
}

static int crash_sync(void *ctx, int fd)
{
    settle(by_fd(ctx, fd));
    return 0;
}

static int crash_stat(void *ctx, const char *path, struct fs_stat *stat_out)
{
    struct crash_fs *fs = ctx;
    const struct name *name = names_find(&fs->now, path);

    if (!name)
        return -ENOENT;
    const struct inode *inode = &fs->inodes[name->inode];
    *stat_out = (struct fs_stat){inode->directory ? FS_DIRECTORY : FS_FILE, inode->now.len, 1};
    return 0;
}

static int crash_mkdir(void *ctx, const char *path)
{
    struct crash_fs *fs = ctx;

    if (names_find(&fs->now, path))
        return -EEXIST;
    if (!names_has_dir(&fs->now, path))
        return -ENOENT;
    do_change(fs, NULL, path, new_inode(fs, true));
    return 0;
}

static int crash_unlink(void *ctx, const char *path)
{
    struct crash_fs *fs = ctx;
    const struct name *name = names_find(&fs->now, path);

    if (!name)
        return -ENOENT;
    do_change(fs, path, NULL, name->inode);
    return 0;
}

static int crash_rename(void *ctx, const char *from, const char *to)
{
    struct crash_fs *fs = ctx;
    const struct name *name = names_find(&fs->now, from);

    if (!name || !names_has_dir(&fs->now, to))
        return -ENOENT;
    do_change(fs, from, to, name->inode);
    return 0;
}

static int crash_link(void *ctx, const char *from, const char *to)
{
    struct crash_fs *fs = ctx;
    const struct name *name = names_find(&fs->now, from);

    if (!name || !names_has_dir(&fs->now, to))
        return -ENOENT;
    if (names_find(&fs->now, to))
        return -EEXIST;
    do_change(fs, NULL, to, name->inode);
    return 0;
}

static int crash_list(void *ctx, const char *path, fs_visit_fn *visit, void *visit_ctx)
{
    struct crash_fs *fs = ctx;
    const struct name *dir = names_find(&fs->now, path);
    char *names[CRASH_MAX_NAMES];
    size_t count = 0;
    int rc = 0;

    if (!dir)
        return -ENOENT;
    if (!fs->inodes[dir->inode].directory)
        return -ENOTDIR;
    for (size_t i = 0; i < fs->now.count; i++) {
        if (fs->now.at[i].dir == dir->inode)
            names[count++] = crash_copy_text(fs->now.at[i].text);
    }
    for (size_t i = 0; i < count; i++) {
        rc = rc == 0 ? visit(visit_ctx, names[i]) : rc;
        free(names[i]);
    }
    return rc;
}

static int crash_sync_dir(void *ctx, const char *path)
{
    struct crash_fs *fs = ctx;
    const struct name *name = is_parent(path) ? NULL : names_find(&fs->now, path);
    int dir = name ? name->inode : CRASH_ROOT;
    size_t kept = 0;

    if (!name && !is_parent(path))
        return -ENOENT;
    for (size_t i = 0; i < fs->nchanges; i++) {
        struct change change = fs->changes[i];

        if ((change.from.text && change.from.dir == dir) || (change.to.text && change.to.dir == dir)) {
            names_apply(&fs->disk, &change);
            change_deinit(&change);
        } else {
            fs->changes[kept++] = change;
        }
    }
    fs->nchanges = kept;
    return 0;
}

static void settle_all(struct crash_fs *fs)
{
    for (size_t i = 0; i < fs->nchanges; i++) {
        names_apply(&fs->disk, &fs->changes[i]);
        change_deinit(&fs->changes[i]);
    }
    fs->nchanges = 0;
    for (int i = 0; i < fs->ninodes; i++) {
        if (fs->inodes[i].used)
            settle(&fs->inodes[i]);
    }
}

static int crash_sync_all(void *ctx, int fd)
{
    by_fd(ctx, fd);
    settle_all(ctx);
    return 0;
}

static int crash_lock(void *ctx, const char *path, int *fd_out, pid_t *owner_out)
{
    struct crash_fs *fs = ctx;

    if (fs->lock_fd >= 0) {
        *owner_out = 4711;
        return -EWOULDBLOCK;
    }
    int rc = crash_open(ctx, path, FS_READ | FS_WRITE | FS_CREATE, fd_out);
    if (rc == 0)
        fs->lock_fd = *fd_out;
    return rc;
}

static int crash_is_at(void *ctx, int fd, const char *path)
{
    struct crash_fs *fs = ctx;
    const struct name *name = names_find(&fs->now, path);

    return name && &fs->inodes[name->inode] == by_fd(fs, fd) ? 0 : -ESTALE;
}

struct crash_fs *crash_fs_create(void)
{
    struct crash_fs *fs = calloc(1, sizeof(*fs));

    crash_demand(fs != NULL, "out of memory");
    /* Thousands of disks are copied one after the other: the heap keeps the memory instead of giving it back to the
     * system, and having it zeroed again, for each. */
    mallopt(M_TRIM_THRESHOLD, KEPT_MEMORY);
    mallopt(M_MMAP_THRESHOLD, KEPT_MEMORY);
    fs->lock_fd = -1;
    new_inode(fs, true);
    for (int i = 0; i < MAX_FDS; i++)
        fs->fds[i] = -1;
    fs->ops = (struct fsops){
        .ctx = fs,
        .open = crash_open,
        .close = crash_close,
        .pread = crash_pread,
        .pwrite = crash_pwrite,
        .size = crash_size,
        .truncate = crash_truncate,
        .sync = crash_sync,
        .stat = crash_stat,
        .mkdir = crash_mkdir,
        .unlink = crash_unlink,
        .rename = crash_rename,
        .link = crash_link,
        .list = crash_list,
        .sync_dir = crash_sync_dir,
        .sync_all = crash_sync_all,
        .lock = crash_lock,
        .is_at = crash_is_at,
    };
    return fs;
}

void crash_fs_destroy(struct crash_fs *fs)
{
    if (!fs)
        return;
    for (size_t i = 0; i < fs->now.count; i++)
        free(fs->now.at[i].text);
    for (size_t i = 0; i < fs->disk.count; i++)
        free(fs->disk.at[i].text);
    for (size_t i = 0; i < fs->nchanges; i++)
        change_deinit(&fs->changes[i]);
    for (int i = 0; i < fs->ninodes; i++) {
        free(fs->inodes[i].now.ptr);
        free(fs->inodes[i].disk.ptr);
    }
    free(fs->inodes);
    free(fs);
}

void crash_fs_sync_failed(struct crash_fs *fs, int fd)
{
    by_fd(fs, fd)->lost = true;
}

const struct fsops *crash_fs_ops(struct crash_fs *fs)
{
    return &fs->ops;
}

/* ---- the crash ---- */

static uint64_t next_random(uint64_t *state)
{
    uint64_t x = *state += UINT64_C(0x9e3779b97f4a7c15);

    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* Any sector (or page) may have reached the disk or not; the size may be the old one, the new one, or any multiple
 * of a sector between; unwritten bytes read as zeros. */
static void tear(struct bytes *out, const struct inode *inode, uint64_t *random)
{
    size_t small = inode->now.len < inode->disk.len ? inode->now.len : inode->disk.len;
    size_t large = inode->now.len < inode->disk.len ? inode->disk.len : inode->now.len;
    size_t choice = (size_t)(next_random(random) % 4), unit = next_random(random) % 2 ? SECTOR : PAGE;
    size_t len = choice == 0   ? inode->disk.len
                 : choice == 1 ? small + (large - small) / 2 / unit * unit
                               : inode->now.len;

    resize(out, 0);
    resize(out, len);
    memset(out->ptr, 0, len);
    for (size_t at = 0; at < len; at += unit) {
        const struct bytes *from = next_random(random) % 2 ? &inode->now : &inode->disk;
        size_t n = len - at < unit ? len - at : unit;
        if (at >= from->len)
            continue;
        n = from->len - at < n ? from->len - at : n;
        memcpy(out->ptr + at, from->ptr + at, n);
    }
}

void crash_fs_killed(struct crash_fs *fs)
{
    for (int i = 0; i < MAX_FDS; i++)
        fs->fds[i] = -1;
    fs->lock_fd = -1;
    for (int i = 0; i < fs->ninodes; i++)
        fs->inodes[i].lost = false;
    settle_all(fs);
}

struct crash_fs *crash_fs_after(const struct crash_fs *fs, enum crash_mode mode, uint64_t seed)
{
    struct crash_fs *after = crash_fs_create();
    bool names = mode == CRASH_KEEP_ALL || mode == CRASH_NAMES_ONLY;
    bool data = mode == CRASH_KEEP_ALL || mode == CRASH_DATA_ONLY;

    for (size_t i = 0; i < fs->disk.count; i++)
        names_set(&after->disk, fs->disk.at[i].dir, fs->disk.at[i].text, fs->disk.at[i].inode);
    for (size_t i = 0; i < fs->nchanges; i++) {
        if (names || (mode == CRASH_RANDOM && next_random(&seed) % 2))
            names_apply(&after->disk, &fs->changes[i]);
    }
    for (size_t i = 0; i < after->disk.count; i++)
        names_set(&after->now, after->disk.at[i].dir, after->disk.at[i].text, after->disk.at[i].inode);
    free(after->inodes);
    after->inodes = calloc((size_t)fs->ninodes, sizeof(*after->inodes));
    crash_demand(after->inodes != NULL, "out of memory");
    after->ninodes = fs->ninodes;
    after->nfree = 0;
    for (int i = 0; i < fs->ninodes; i++) {
        const struct inode *inode = &fs->inodes[i];

        after->inodes[i].used = inode->used;
        after->inodes[i].directory = inode->directory;
        if (!inode->used)
            continue;
        if (mode == CRASH_RANDOM && next_random(&seed) % 3 == 0)
            tear(&after->inodes[i].now, inode, &seed);
        else if (data || (mode == CRASH_RANDOM && next_random(&seed) % 2))
            copy_bytes(&after->inodes[i].now, &inode->now);
        else
            copy_bytes(&after->inodes[i].now, &inode->disk);
        copy_bytes(&after->inodes[i].disk, &after->inodes[i].now);
    }
    collect(after);
    return after;
}
