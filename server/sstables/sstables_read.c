/* From a file to a filter in memory. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bloom_state.h"
#include "clock.h"
#include "filterdb.h"
#include "rcu.h"
#include "sstable_keys.h"
#include "sstables_internal.h"
#include "lock.h"

/* The facts of the file that a read needs while the record may change. */
struct reading {
    char *path;
    enum bloom_variant variant;
    uint64_t id;
    struct entry *entry; /* the filter that was read */
    bool retry;
    struct errbuf err; /* the reason why there is none */
};

static bool read_exactly(struct reading *reading, int fd, void *into, uint64_t len, uint64_t offset)
{
    char *at = into;
    while (len > 0) {
        ssize_t n = pread(fd, at, len < (UINT64_C(64) << 20) ? (size_t)len : (size_t)64 << 20, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            errbuf_set(&reading->err, "its file %s", n == 0 ? "was truncated while it was read" : strerror(errno));
            reading->retry = n < 0;
            return false;
        }
        at += n;
        offset += (uint64_t)n;
        len -= (uint64_t)n;
    }
    return true;
}

/* The parameters for a filter of this shape, which the file lacks: the number of items that k is best for. */
static struct bloom_params params_for(const struct bloom_shape *shape)
{
    double bits = (double)shape->nwords * 64, items = bits / shape->k * 0.6931;
    return (struct bloom_params){.capacity = items < 1 ? 1 : (uint64_t)items, .error_rate = pow(0.5, shape->k)};
}

/* ---- room ---- */

/* The filter in memory that has not been asked for the longest time; NULL: none. Under the lock, online. */
static struct sstable *least_used(struct sstables *s)
{
    struct sstable *found = NULL;
    int64_t longest = -1, now = clock_coarse_ms();
    for (struct watched_dir *dir = s->first_dir; dir; dir = dir->next) {
        for (struct sstable *file = dir->files; file; file = file->next) {
            struct entry *entry = file->state == SSTABLE_READ ? sstables_find(s, slice_of(file->name)) : NULL;
            int64_t idle = entry ? entry_idle_ms(entry, now) : -1;
            if (idle > longest) {
                longest = idle;
                found = file;
            }
        }
    }
    return found;
}

static uint64_t bytes_in_memory(const struct sstables *s)
{
    uint64_t bytes = 0;
    for (const struct watched_dir *dir = s->first_dir; dir; dir = dir->next)
        for (const struct sstable *file = dir->files; file; file = file->next)
            bytes += file->state == SSTABLE_READ ? file->stamp.size : 0;
    return bytes;
}

/* Gives back the memory of filters that can be read again, at least this many bytes. False: there are not so many. */
static bool make_room(struct sstables *s, uint64_t bytes)
{
    uint64_t room = 0;
    struct sstable *file;
    rcu_reader_online();
    lock_take(&s->lock);
    bool enough = bytes_in_memory(s) >= bytes;
    while (enough && room < bytes && (file = least_used(s))) {
        sstables_set_placeholder(s, file, SSTABLE_UNREAD, SSTABLES_UNREAD);
        if (file->state == SSTABLE_READ)
            break; /* no memory even for that */
        room += file->stamp.size;
        s->numbers.evicted++;
    }
    lock_give(&s->lock);
    rcu_reader_offline();
    if (room > 0)
        reclaimer_flush(s->reclaimer);
    return room >= bytes;
}

/* ---- reading ---- */

static bool prepare(struct sstables *s, struct reading *reading, struct slice name, const struct bloom_shape *shape)
{
    struct bloom_params params = params_for(shape);
    struct bloom_class *class;
    int status = bloom_class_get(s->pool, &params, shape, &class, &reading->err);
    if (status == 0) {
        status = registry_prepare(s->registry, name, class, false, &reading->entry, &reading->err);
        if (status == REGISTRY_LIMIT && make_room(s, shape->nwords * 8))
            status = registry_prepare(s->registry, name, class, false, &reading->entry, &reading->err);
        bloom_class_release(class);
        reading->retry = status != REGISTRY_OK; /* a limit, or no memory */
        if (status == REGISTRY_LIMIT)
            errbuf_prefix(&reading->err, "not enough memory for it (maxmemory, bf-max-filter-bytes)");
    } else {
        reading->retry = status == -ENOMEM;
    }
    if (status == -ENOMEM)
        errbuf_set(&reading->err, "out of memory");
    return status == 0;
}

static bool read_words(struct reading *reading, int fd)
{
    struct bloom_filter *filter = entry_filter(reading->entry);
    struct bloom_layer_view layer;
    struct bloom_state state;
    bloom_filter_expect_fill(filter);
    bloom_filter_layer(filter, 0, &layer);
    if (!read_exactly(reading, fd, (void *)layer.words, layer.shape.nwords * 8, FILTERDB_HEADER_BYTES))
        return false;
    filterdb_turn_words(layer.shape.variant, layer.words, (size_t)layer.shape.nwords);
    bloom_layer_state(&layer, &state);
    double items = state.estimated_items;
    bloom_filter_set_items(filter, 0, items < (double)layer.capacity ? (uint64_t)llround(items) : layer.capacity);
    return true;
}

static bool same_file(const struct stat *a, const struct stat *b)
{
    return a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
           a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

static bool has(void *filter, struct bloom_hash hash)
{
    return bloom_filter_query(filter, hash);
}

static bool read_open_file(struct sstables *s, struct reading *reading, struct slice name, int fd)
{
    unsigned char header[FILTERDB_HEADER_BYTES] = {0};
    struct bloom_shape shape = {0};
    struct stat before, after;
    if (fstat(fd, &before) != 0 || !S_ISREG(before.st_mode))
        return errbuf_fail(&reading->err, false, "it is not a regular file");
    uint64_t size = (uint64_t)before.st_size;
    if (!read_exactly(reading, fd, header, size < sizeof(header) ? size : sizeof(header), 0) ||
        filterdb_decode_header(header, size, reading->variant, &shape, &reading->err) != FILTERDB_OK ||
        !prepare(s, reading, name, &shape) || !read_words(reading, fd))
        return false;
    if (fstat(fd, &after) == 0 && same_file(&before, &after))
        return sstable_keys_are_in(reading->path, has, entry_filter(reading->entry), &reading->err);
    errbuf_set(&reading->err, "its file changed while it was read");
    reading->retry = true;
    return false;
}

static void read_file(struct sstables *s, struct reading *reading, struct slice name)
{
    int fd = open(reading->path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0) {
        errbuf_set(&reading->err, "%s", strerror(errno));
        reading->retry = true; /* permissions, or too many open files */
        return;
    }
    if (!read_open_file(s, reading, name, fd) && reading->entry) {
        registry_abandon(s->registry, reading->entry);
        reading->entry = NULL;
    }
    close(fd);
}

/* Takes the file to be read. False: there is nothing to do. */
static bool begin_reading(struct sstables *s, struct slice name, struct reading *reading)
{
    struct sstable *file;
    lock_take(&s->lock);
    while ((file = sstables_by_name(s, name)) && file->reading)
        lock_wait(&s->read, &s->lock);
    bool unread = file && file->state == SSTABLE_UNREAD;
    if (unread) {
        *reading = (struct reading){.path = strdup(file->path), .variant = file->variant, .id = file->id};
        unread = reading->path != NULL;
        file->reading = unread;
    }
    lock_give(&s->lock);
    return unread;
}

/* Publishes the filter that was read, unless the file is another one by now. */
static void end_reading(struct sstables *s, struct slice name, struct reading *reading)
{
    struct registry_publication how = {.expected_id = reading->id};
    lock_take(&s->lock);
    struct sstable *file = sstables_by_name(s, name);
    bool same = file && file->id == reading->id;
    if (file)
        file->reading = false;
    if (same && reading->entry && registry_publish(s->registry, reading->entry, &how) == REGISTRY_OK) {
        file->id = reading->entry->id;
        file->state = SSTABLE_READ;
        reading->entry = NULL;
    } else if (same && !reading->entry) {
        errbuf_prefix(&reading->err, "%s", reading->path);
        sstables_set_placeholder(s, file, SSTABLE_BROKEN, reading->err.text);
        file->retry = reading->retry;
    }
    pthread_cond_broadcast(&s->read);
    lock_give(&s->lock);
    if (reading->entry)
        registry_abandon(s->registry, reading->entry);
}

void sstables_read(struct sstables *s, struct slice name)
{
    struct reading reading;
    rcu_reader_offline();
    if (begin_reading(s, name, &reading)) {
        read_file(s, &reading, name);
        end_reading(s, name, &reading);
        free(reading.path);
    }
    rcu_reader_online();
}
