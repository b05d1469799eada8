#include "node.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fsops.h"

#define PATH_SIZE 4096

struct search {
    char directory[PATH_SIZE]; /* real, with a slash at its end */
    size_t len;
};

static bool is_below(const struct search *search, const char *path)
{
    return strncmp(path, search->directory, search->len) == 0;
}

/* 1: it has one open; 0: no; -errno: it cannot be checked. */
static int has_open(const struct search *search, const char *pid)
{
    char path[300], target[PATH_SIZE];
    int found = 0;
    snprintf(path, sizeof(path), "/proc/%.20s/fd", pid);
    DIR *descriptors = fs_open_dir(path);
    if (!descriptors)
        return -errno;
    for (const struct dirent *item; !found && (item = readdir(descriptors));) {
        snprintf(path, sizeof(path), "/proc/%.20s/fd/%.20s", pid, item->d_name);
        ssize_t len = readlink(path, target, sizeof(target) - 1);
        target[len > 0 ? len : 0] = '\0';
        found = is_below(search, target);
    }
    closedir(descriptors);
    return found;
}

/* The same for mapped files: a database may close the files that it has mapped. */
static int has_mapped(const struct search *search, const char *pid)
{
    char path[64], line[PATH_SIZE + 128];
    int found = 0;
    snprintf(path, sizeof(path), "/proc/%.20s/maps", pid);
    FILE *maps = fopen(path, "re");
    if (!maps)
        return -errno;
    while (!found && fgets(line, sizeof(line), maps)) {
        const char *file = strchr(line, '/');
        found = file && is_below(search, file);
    }
    fclose(maps);
    return found;
}

static void name_of(const char *pid, char out[64])
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%.20s/comm", pid);
    FILE *file = fopen(path, "re");
    out[0] = '\0';
    if (file && fgets(out, 64, file))
        out[strcspn(out, "\n")] = '\0';
    if (file)
        fclose(file);
}

/* Whether a file of the directory is open in a process that cannot be looked at: the kernel grants the owner of a file,
 * or root, a lease for writing only while nobody else has the file open. Where it grants none for another reason, this
 * tells nothing. */
static bool has_open_file(const struct search *search, struct errbuf *err)
{
    DIR *files = fs_open_dir(search->directory);
    bool open_elsewhere = false;
    signal(SIGIO, SIG_IGN); /* if somebody opens the file at this moment */
    for (const struct dirent *item; files && !open_elsewhere && (item = readdir(files));) {
        int fd = item->d_type == DT_REG
                     ? openat(dirfd(files), item->d_name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)
                     : -1;
        open_elsewhere = fd >= 0 && fcntl(fd, F_SETLEASE, F_WRLCK) != 0 && errno == EAGAIN;
        if (open_elsewhere)
            errbuf_set(err, "a process of another user has %s%s open", search->directory, item->d_name);
        if (fd >= 0)
            close(fd); /* ends the lease */
    }
    if (files)
        closedir(files);
    return open_elsewhere;
}

/* Whether the process uses the directory, or may be a database that cannot be checked. *hidden_out becomes true if it
 * is another one that cannot be checked. */
static bool uses(const struct search *search, const char *pid, bool *hidden_out, struct errbuf *err)
{
    char name[64];
    int open = has_open(search, pid), mapped = open > 0 ? 0 : has_mapped(search, pid);
    *hidden_out |= open == -EACCES || mapped == -EACCES;
    if (open == 0 && mapped == 0)
        return false;
    name_of(pid, name);
    if (open > 0 || mapped > 0) {
        errbuf_set(err, "the process %s (%s) uses files of %s", pid, name, search->directory);
        return true;
    }
    bool may_be = strcmp(name, "java") == 0 || strncmp(name, "scylla", 6) == 0;
    if (may_be)
        errbuf_set(err, "the process %s (%s) may use %s, and its open files cannot be read: %s", pid, name,
                   search->directory, strerror(open < 0 ? -open : -mapped));
    return may_be;
}

bool node_may_use(const char *directory, struct errbuf *err)
{
    struct search search;
    char real[PATH_SIZE];
    bool used = false, hidden = false;
    DIR *processes = realpath(directory, real) && strlen(real) + 2 <= PATH_SIZE ? fs_open_dir("/proc") : NULL;
    if (!processes) {
        errbuf_set(err, "cannot determine whether a database uses %s: %s", directory, strerror(errno));
        return true;
    }
    search.len = (size_t)snprintf(search.directory, sizeof(search.directory), "%s%s", real, real[1] ? "/" : "");
    for (const struct dirent *item; !used && (item = readdir(processes));) {
        if (isdigit((unsigned char)item->d_name[0]) && strtol(item->d_name, NULL, 10) != getpid())
            used = uses(&search, item->d_name, &hidden, err);
    }
    closedir(processes);
    return used || (hidden && has_open_file(&search, err));
}
