#include "disk_control.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct disk *disk;

static char directory[40];
static char control_path[64];
static char shim_path[80]; /* a link: LD_PRELOAD is a list, and takes a space within a path for the end of it */

void disk_attach(void)
{
    const char *options = getenv("ASAN_OPTIONS");
    char asan[1024];

    if (disk)
        return;
    strcpy(directory, "/tmp/bloomery-disk-XXXXXX");
    cr_assert(mkdtemp(directory) && chmod(directory, 0755) == 0, "%s: %s", directory, strerror(errno));
    snprintf(control_path, sizeof(control_path), "%s/control", directory);
    int fd = open(control_path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    cr_assert(fd >= 0 && ftruncate(fd, sizeof(*disk)) == 0, "%s", control_path);
    disk = mmap(NULL, sizeof(*disk), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    cr_assert_neq(disk, MAP_FAILED);
    snprintf(asan, sizeof(asan), "%s%sverify_asan_link_order=0", options ? options : "", options ? ":" : "");
    setenv("ASAN_OPTIONS", asan, 1);
    setenv("BLOOMERY_DISK", control_path, 1);
    snprintf(shim_path, sizeof(shim_path), "%s/shim.so", directory);
    cr_assert_eq(symlink(DISK_SHIM_PATH, shim_path), 0, "%s: %s", shim_path, strerror(errno));
    setenv("LD_PRELOAD", shim_path, 1);
}

void disk_detach(void)
{
    if (!disk)
        return;
    unsetenv("LD_PRELOAD");
    unsetenv("BLOOMERY_DISK");
    unlink(control_path);
    unlink(shim_path);
    rmdir(directory);
    munmap(disk, sizeof(*disk));
    disk = NULL;
}

void disk_mend(void)
{
    atomic_store(&disk->delay_ms, 0);
    atomic_store(&disk->sync_error, 0);
    atomic_store(&disk->write_error, 0);
    atomic_store(&disk->writes_refused, 0);
    atomic_store(&disk->hold_syncs, 0);
    atomic_store(&disk->hold_reads, 0);
    atomic_store(&disk->read_ms, 0);
    atomic_store(&disk->fail_in, 0);
    atomic_store(&disk->no_memory, 0);
}

void disk_fail(long in, enum disk_fault fault, int error)
{
    disk_fail_only("", in, fault, error);
}

void disk_fail_only(const char *operation, long in, enum disk_fault fault, int error)
{
    snprintf(disk->only, sizeof(disk->only), "%s", operation);
    atomic_store(&disk->fault, (int)fault);
    atomic_store(&disk->error, error);
    atomic_store(&disk->hits, 0);
    atomic_store(&disk->fail_in, in);
}

void disk_record_in(const char *path)
{
    snprintf(disk->trace, sizeof(disk->trace), "%s", path ? path : "");
    if (path)
        unlink(path);
}
