#include "sstable_dir.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

static bool ends_with(const char *path, const char *end)
{
    size_t len = strlen(path), end_len = strlen(end);
    return len > end_len && strcmp(path + len - end_len, end) == 0;
}

enum sstable_file sstable_file_of(const char *path, struct sstable_name *name_out)
{
    static const struct {
        const char *component;
        enum sstable_file file;
    } telling[] = {
        {"Filter.db", SSTABLE_FILE_FILTER},
        {"Data.db", SSTABLE_FILE_DATA},
        {"TOC.txt", SSTABLE_FILE_TOC},
        {"TOC.txt.tmp", SSTABLE_FILE_TOC},
    };
    struct errbuf err;
    if (sstable_name_parse(path, name_out, &err) != SSTABLE_OK)
        return ends_with(path, "-Filter.db") || ends_with(path, "-Data.db") ? SSTABLE_FILE_UNKNOWN : SSTABLE_FILE_OTHER;
    for (size_t i = 0; i < sizeof(telling) / sizeof(telling[0]); i++)
        if (strcmp(name_out->component.ptr, telling[i].component) == 0)
            return telling[i].file;
    /* a directory's name may look like one, but has no component */
    return strchr(name_out->component.ptr, '.') ? SSTABLE_FILE_COMPONENT : SSTABLE_FILE_OTHER;
}

bool sstable_is_unfinished(const char *path, const struct sstable_name *name)
{
    char toc[PATH_MAX];
    return sstable_sibling(path, name, "TOC.txt.tmp", toc, sizeof(toc)) >= sizeof(toc) || access(toc, F_OK) == 0;
}

bool dir_place_is_circle(const struct dir_place *place)
{
    for (const struct dir_place *above = place->above; above; above = above->above)
        if (above->st.st_dev == place->st.st_dev && above->st.st_ino == place->st.st_ino)
            return true;
    return false;
}

int dir_entry_is_directory(const char *path, const char *name, unsigned char d_type)
{
    struct stat st;
    if (strcmp(name, "lost+found") == 0)
        return 0;
    if (d_type != DT_UNKNOWN && d_type != DT_LNK)
        return d_type == DT_DIR;
    if (stat(path, &st) == 0)
        return S_ISDIR(st.st_mode);
    return errno == ENOENT || errno == ENOTDIR || errno == ELOOP ? 0 : -errno;
}
