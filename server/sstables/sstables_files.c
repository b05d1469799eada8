/* Records of files: their names, their placeholders, and how they are forgotten.
 *
 * A compaction writes new SSTables, completes them, and removes the old ones. A concurrent scan may pass the place of
 * the new SSTable before it exists, and miss the old one a moment later. So a missing file keeps its filter, in memory
 * or reported as unreadable, until the daemon has found all files that existed before its removal
 * (sstables_forget_removed()). The filter also stays until all queries have ended that may have passed their names
 * before these files existed.
 *
 * If several files would have one name, none gets it: each name has the file's path as a suffix. So a name follows from
 * the paths of the existing files, and never from the order of their discovery. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "clock.h"
#include "sstables_internal.h"

#define COMPONENT "-Filter.db"
#define NO_FILTER "the SSTable has no Filter.db: it may hold the key"

/* A file that is missing for this long is forgotten without proof: in constantly changing directories there may be
 * none. */
#define PATIENCE_MS 60000

/* ---- finding ---- */

struct sstable *sstables_by_path(const struct sstables *s, const char *path)
{
    struct hash_link *link = hash_table_first(&s->tables.by_path, sstables_hash(path, strlen(path)));
    for (; link; link = hash_table_next(link)) {
        struct sstable *file = HASH_OBJECT(link, struct sstable, by_path);
        if (!file->replaced && strcmp(file->path, path) == 0)
            return file;
    }
    return NULL;
}

struct sstable *sstables_by_name(struct sstables *s, struct slice name)
{
    struct hash_link *link = hash_table_first(&s->tables.by_name, sstables_hash(name.ptr, name.len));
    for (; link; link = hash_table_next(link)) {
        struct sstable *file = HASH_OBJECT(link, struct sstable, by_name);
        if (strlen(file->name) == name.len && memcmp(file->name, name.ptr, name.len) == 0)
            return file;
    }
    return NULL;
}

/* The first file that would have this name, from `link` on, and that is there; or any one. */
static struct sstable *of_base(struct hash_link *link, const char *base, size_t len, bool there)
{
    for (; link; link = hash_table_next(link)) {
        struct sstable *file = HASH_OBJECT(link, struct sstable, by_base);
        if (file->base_len == len && memcmp(file->name, base, len) == 0 && !(there && file->missing_ms))
            return file;
    }
    return NULL;
}

static struct sstable *first_of_base(const struct sstables *s, const char *base, size_t len, bool there)
{
    return of_base(hash_table_first(&s->tables.by_base, sstables_hash(base, len)), base, len, there);
}

/* ---- names ---- */

#define PART(part) (int)(part).len, (part).ptr ? (part).ptr : ""

/* The name that other files may share, malloc'ed; NULL without memory. */
static char *base_name(const struct sstable_name *name)
{
    static const char *const places[] = {
        [SSTABLE_SNAPSHOT] = "snapshots/", [SSTABLE_BACKUP] = "backups/", [SSTABLE_UPLOAD] = "upload/"};
    size_t place = (size_t)name->place;
    bool is_apart = place < sizeof(places) / sizeof(places[0]) && places[place];
    char *text;
    int len = asprintf(&text, "%s%.*s%s%.*s%s%.*s%s%.*s/%.*s", is_apart ? places[place] : "", PART(name->snapshot),
                       name->snapshot.len ? "/" : "", PART(name->keyspace), name->keyspace.len ? "." : "",
                       PART(name->table), name->index.len ? "." : "", PART(name->index), PART(name->generation));
    return len < 0 ? NULL : text;
}

/* The name that no other file has: with the SSTable's path. */
static char *whole_name(const char *base, size_t len, const char *path)
{
    char *text;
    int length = asprintf(&text, "%.*s#%.*s", (int)len, base, (int)(strlen(path) - strlen(COMPONENT)), path);
    return length < 0 ? NULL : text;
}

/* ---- placeholders ---- */

void sstables_set_placeholder(struct sstables *s, struct sstable *file, enum sstable_state state, const char *reason)
{
    if (registry_publish_quarantined(s->registry, slice_of(file->name), reason, &file->id) == REGISTRY_OK) {
        file->state = state;
        file->retry = false;
    } else {
        s->rounds.failed = true; /* without memory the old state stays, and the next round of all tries again */
    }
}

static bool has_no_filter(const struct sstable *file)
{
    return file->stamp.inode == 0;
}

/* Makes the filter of a file that is new, or has changed, a placeholder. */
static void publish(struct sstables *s, struct sstable *file)
{
    struct sstable_name name;
    struct errbuf err = {""};
    s->rounds.changed = true;
    if (has_no_filter(file))
        sstables_set_placeholder(s, file, SSTABLE_BROKEN, NO_FILTER);
    else if (sstable_name_parse(file->path, &name, &err) == SSTABLE_OK &&
             sstable_name_variant(&name, &file->variant, &err) == SSTABLE_OK)
        sstables_set_placeholder(s, file, SSTABLE_UNREAD, SSTABLES_UNREAD);
    else
        sstables_set_placeholder(s, file, SSTABLE_BROKEN, err.text);
}

/* ---- records ---- */

static void file_free(struct sstable *file)
{
    free(file->path);
    free(file->name);
    free(file);
}

static bool insert(struct sstables *s, struct sstable *file)
{
    VERIFY(!sstables_by_name(s, slice_of(file->name))); /* forgetting one record would take the other's filter */
    file->by_path.hash = sstables_hash(file->path, strlen(file->path));
    file->by_name.hash = sstables_hash(file->name, strlen(file->name));
    file->by_base.hash = sstables_hash(file->name, file->base_len);
    if (hash_table_insert(&s->tables.by_path, &file->by_path) != 0)
        return false;
    if (hash_table_insert(&s->tables.by_name, &file->by_name) == 0) {
        if (hash_table_insert(&s->tables.by_base, &file->by_base) == 0)
            return true;
        hash_table_remove(&s->tables.by_name, &file->by_name);
    }
    hash_table_remove(&s->tables.by_path, &file->by_path);
    return false;
}

/* The file has come, or has changed. */
static void restamp(struct sstables *s, struct sstable *file, const struct sstable_stamp *stamp)
{
    struct sstable_stamp before = file->stamp;
    uint64_t id = file->id;
    file->stamp = *stamp;
    publish(s, file);
    if (file->id == id)
        file->stamp = before; /* without memory: it will be seen to have changed again */
}

static void is_back(struct sstables *s, struct sstable *file)
{
    file->missing_ms = 0;
    file->retiring = false;
    s->missing--;
    s->rounds.changed = true;
}

/* A record under this name, malloc'ed, which it takes. If the same file had this name before and its record is not
 * forgotten yet, that record: forgetting it would take the name away. NULL without memory, for it or for the name. */
static struct sstable *add_record(struct sstables *s, struct watched_dir *dir, const char *path, char *name,
                                  size_t base_len, const struct sstable_stamp *stamp)
{
    struct sstable *former = name ? sstables_by_name(s, slice_of(name)) : NULL;
    if (former && former->replaced && strcmp(former->path, path) == 0) {
        free(name);
        former->replaced = false;
        former->seen = s->numbers.scans;
        is_back(s, former);
        restamp(s, former, stamp);
        return former;
    }
    struct sstable *file = calloc(1, sizeof(*file));
    if (!file || !name || !(file->path = strdup(path))) {
        free(name);
        free(file);
        s->rounds.failed = true;
        return NULL;
    }
    file->name = name;
    file->base_len = base_len;
    file->stamp = *stamp;
    file->seen = s->numbers.scans;
    if (!insert(s, file)) {
        file_free(file);
        s->rounds.failed = true;
        return NULL;
    }
    file->dir = dir;
    file->next = dir->files;
    dir->files = file;
    s->numbers.filters++;
    publish(s, file);
    if (file->id != 0)
        return file;
    sstables_forget(s, file);
    return NULL;
}

void sstables_forget(struct sstables *s, struct sstable *file)
{
    struct sstable **at = &file->dir->files;
    while (*at != file)
        at = &(*at)->next;
    *at = file->next;
    hash_table_remove(&s->tables.by_path, &file->by_path);
    hash_table_remove(&s->tables.by_name, &file->by_name);
    hash_table_remove(&s->tables.by_base, &file->by_base);
    (void)registry_delete(s->registry, slice_of(file->name));
    s->numbers.filters--;
    s->missing -= file->missing_ms != 0;
    s->rounds.changed = true;
    file_free(file);
}

/* ---- names that several files would have ---- */

/* Gives the file another name. The filter of the old one stays until it is forgotten as that of a gone file. */
static void rename_file(struct sstables *s, struct sstable *file, char *name)
{
    struct sstable *renamed = add_record(s, file->dir, file->path, name, file->base_len, &file->stamp);
    if (!renamed)
        return; /* the next file of this name, or the next round of all, tries again */
    renamed->seen = file->seen;
    file->replaced = true;
    sstables_miss(s, file);
}

/* Of the files with one name: a single file gets the name as soon as it is free; if there are several, none gets it. */
static void settle_names(struct sstables *s, const struct sstable *any)
{
    size_t len = any->base_len;
    struct slice base = {any->name, len};
    struct sstable *first = first_of_base(s, base.ptr, len, true), *holder = sstables_by_name(s, base);
    if (!first)
        return;
    if (!of_base(hash_table_next(&first->by_base), base.ptr, len, true)) {
        if (!holder)
            rename_file(s, first, strndup(base.ptr, len));
    } else if (holder && !holder->missing_ms) {
        rename_file(s, holder, whole_name(base.ptr, len, holder->path));
    }
}

bool sstables_share_name(struct sstables *s, struct slice name)
{
    lock_take(&s->lock);
    bool shared = first_of_base(s, name.ptr, name.len, false) != NULL;
    lock_give(&s->lock);
    return shared;
}

bool sstables_is_gone(struct sstables *s, const char *path)
{
    lock_give(&s->lock);
    bool missing = access(path, F_OK) != 0 && errno == ENOENT;
    lock_take(&s->lock);
    return missing;
}

/* The file gets the name that it may share if no other file has it. */
static void add_file(struct sstables *s, struct watched_dir *dir, const char *path, char *base,
                     const struct sstable_stamp *stamp)
{
    size_t len = strlen(base);
    struct sstable *holder = sstables_by_name(s, (struct slice){base, len});
    if (holder && !holder->missing_ms && !has_no_filter(holder) && sstables_is_gone(s, holder->path))
        sstables_miss(s, holder); /* it was moved to where the new file is */
    if (!holder && !first_of_base(s, base, len, true)) {
        add_record(s, dir, path, base, len, stamp);
        return;
    }
    struct sstable *file = add_record(s, dir, path, whole_name(base, len, path), len, stamp);
    if (file)
        settle_names(s, file);
    free(base);
}

/* ---- files that the scan has met or missed ---- */

void sstables_keep(struct sstables *s, struct sstable *file)
{
    file->seen = s->numbers.scans;
    if (!file->missing_ms)
        return;
    is_back(s, file);
    settle_names(s, file);
}

void sstables_meet(struct sstables *s, struct watched_dir *dir, const char *path, const struct sstable_name *name,
                   const struct sstable_stamp *stamp)
{
    struct sstable *file = sstables_by_path(s, path);
    if (!file) {
        char *base = base_name(name);
        if (base)
            add_file(s, dir, path, base, stamp);
        s->rounds.failed |= !base;
        return;
    }
    if (memcmp(&file->stamp, stamp, sizeof(*stamp)) != 0 || (file->state == SSTABLE_BROKEN && file->retry))
        restamp(s, file, stamp);
    sstables_keep(s, file);
}

void sstables_miss(struct sstables *s, struct sstable *file)
{
    if (file->missing_ms || (file->dir->root->lost && !file->replaced))
        return;
    file->missing_ms = clock_ms();
    s->missing++;
    s->rounds.changed = true;
}

/* ---- forgetting ---- */

/* Forgets the files marked as leaving. A file with a part of such a name may get the whole name now. */
static void forget_retired(struct sstables *s)
{
    for (struct watched_dir *dir = s->first_dir; dir; dir = dir->next) {
        for (struct sstable *file = dir->files, *next; file; file = next) {
            next = file->next;
            if (!file->retiring)
                continue;
            struct sstable *other = first_of_base(s, file->name, file->base_len, true);
            sstables_forget(s, file);
            if (other)
                settle_names(s, other);
        }
    }
    s->retiring = false;
}

static bool mark_retiring(struct sstables *s, bool proved)
{
    bool any = false;
    for (struct watched_dir *dir = s->first_dir; dir; dir = dir->next) {
        for (struct sstable *file = dir->files; file; file = file->next) {
            file->retiring =
                file->missing_ms && (proved || file->replaced || clock_ms() - file->missing_ms >= PATIENCE_MS);
            any |= file->retiring;
        }
    }
    return any;
}

void sstables_forget_removed(struct sstables *s, bool proved)
{
    struct sstable_questions *questions = &s->questions;
    unsigned before = !atomic_load(&questions->now);
    if (s->missing > 0 && !s->retiring && mark_retiring(s, proved)) {
        s->retiring = true;
        before = atomic_fetch_xor(&questions->now, 1);
    }
    if (s->retiring && atomic_load(&questions->running[before]) == 0)
        forget_retired(s);
}
