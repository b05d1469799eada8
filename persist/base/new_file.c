#include "new_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fsops.h"

#define MODE  0666 /* the umask takes from it */
#define THERE "the file exists; --force replaces it"

static int refuse(struct errbuf *err, int rc)
{
    return errbuf_fail(err, rc, "%s", rc == -EEXIST ? THERE : fs_error_text(rc));
}

/* The directory of a path, with a NUL. */
static void directory_of(const char *path, char *out, size_t size)
{
    const char *slash = strrchr(path, '/');

    snprintf(out, size, "%.*s", slash == path ? 1 : slash ? (int)(slash - path) : 1, slash ? path : ".");
}

int new_file_check(const char *path, bool replace, struct errbuf *err)
{
    struct stat st;

    if (strlen(path) + sizeof(".9223372036854775807.part") > NEW_FILE_PATH)
        return refuse(err, -ENAMETOOLONG);
    if (lstat(path, &st) != 0) /* if it cannot be created, open() reports why */
        return 0;
    if (!replace)
        return refuse(err, -EEXIST);
    if (S_ISDIR(st.st_mode))
        return refuse(err, -EISDIR);
    if (stat(path, &st) != 0 || S_ISREG(st.st_mode))
        return 0;
    return errbuf_fail(err, -EINVAL, "it is a device, a pipe or a socket, which no file replaces");
}

int new_file_open(struct new_file *file, const char *path, bool replace, struct errbuf *err)
{
    TRY(new_file_check(path, replace, err));
    *file = (struct new_file){.path = path, .replace = replace};
    snprintf(file->part, sizeof(file->part), "%s.%ld.part", path, (long)getpid());
    unlink(file->part); /* of an earlier process with our id */
    file->fd = open(file->part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, MODE);
    return file->fd >= 0 ? 0 : refuse(err, -errno);
}

/* NFS cannot do that without a replacement. */
static int name_it(const struct new_file *file)
{
    int rc = renameat2(AT_FDCWD, file->part, AT_FDCWD, file->path, file->replace ? 0 : RENAME_NOREPLACE);

    if (rc != 0 && errno == EINVAL)
        rc = rename(file->part, file->path);
    return rc == 0 ? 0 : -errno;
}

int new_file_end(struct new_file *file, int rc, struct errbuf *err)
{
    const struct fsops *fs = fsops_posix();
    char directory[NEW_FILE_PATH];

    STEP(rc, fs->sync(fs->ctx, file->fd));
    STEP(rc, name_it(file));
    file->placed = rc == 0;
    if (rc != 0)
        fs->unlink(fs->ctx, file->part);
    int closed = fs->close(fs->ctx, file->fd);
    if (!file->placed)
        return refuse(err, rc);
    directory_of(file->path, directory, sizeof(directory));
    rc = fs->sync_dir(fs->ctx, directory);
    rc = rc == 0 ? closed : rc;
    if (rc != 0)
        errbuf_set(err, "it is in place, but could not be synced, so a power failure may undo that: %s", strerror(-rc));
    return rc;
}
