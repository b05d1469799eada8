/* A small file is one piece. A large file is produced in pieces of LAYER_PIECE_BYTES. The first begins with the header,
 * which is as long as a word. Every piece except the last is full and begins at a multiple of its size, as direct I/O
 * requires. The last piece is padded with zeros to a whole block there, and the file cut to its length afterwards.
 *
 * While the disk writes pieces of a large file, the next pieces are copied and hashed, which takes a core a tenth of a
 * second per gigabyte. The buffers are huge pages of memory, because the kernel passes a buffer to the disk page by
 * page. With small pages direct writes were measured at 1.5 GB/s and reads at 1.0; with huge pages at 2.1 and 3.0, for
 * a fifth of the processor's time. One thread writes, since writes that extend a file exclude each other.
 *
 * A large file is read right into the layer's words, the header into the room before them: no copy, and no buffers.
 * Several threads read, because the most expensive part happens in them: the kernel makes the pages that it reads into.
 * The owner follows them with the checksum. */
#include "layer_file.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "check.h"
#include "cuckoo.h"
#include "filterdb.h"
#include "lock.h"

/* ---- threads that help ---- */

/* Threads that read and write pieces of files while their owner computes. Jobs start in the order in which they are
 * submitted, and the owner waits for them in that order. Between the two it leaves the buffer alone. */
#define IO_HELPER_JOBS    16 /* submitted, and not yet waited for */
#define IO_HELPER_THREADS 4

struct io_job {
    bool write;
    int fd;
    void *buf;
    size_t len; /* bytes to be written; when reading, at least `need` and at most `len` */
    size_t need;
    uint64_t offset;
};

struct slot {
    struct io_job job;
    sem_t done;
    int rc;
};

struct io_helper {
    const struct fsops *fs;
    pthread_t threads[IO_HELPER_THREADS];
    unsigned nthreads;
    sem_t work; /* submitted jobs that have not started, or stop */
    atomic_bool stop;
    struct slot slots[IO_HELPER_JOBS]; /* by number modulo their number */
    _Atomic uint64_t begun;
    uint64_t submitted; /* jobs so far; this and the next are the owner's */
    uint64_t waited;
};

static int run_job(const struct fsops *fs, const struct io_job *job)
{
    return job->write ? fs_write_all(fs, job->fd, job->buf, job->len, job->offset)
                      : fs_read_some(fs, job->fd, job->buf, job->need, job->len, job->offset);
}

static void *helper_main(void *arg)
{
    struct io_helper *helper = arg;

    for (;;) {
        lock_wait_for(&helper->work);
        if (atomic_load(&helper->stop))
            return NULL;
        struct slot *slot = &helper->slots[atomic_fetch_add(&helper->begun, 1) % IO_HELPER_JOBS];
        slot->rc = run_job(helper->fs, &slot->job);
        sem_post(&slot->done);
    }
}

/* Without any thread at first: each job then runs while it is submitted. 0 or -ENOMEM. */
static int io_helper_start(struct io_helper **helper_out, const struct fsops *fs)
{
    struct io_helper *helper = calloc(1, sizeof(*helper));

    if (!helper)
        return -ENOMEM;
    helper->fs = fs;
    sem_init(&helper->work, 0, 0);
    for (unsigned i = 0; i < IO_HELPER_JOBS; i++)
        sem_init(&helper->slots[i].done, 0, 0);
    *helper_out = helper;
    return 0;
}

static void io_helper_stop(struct io_helper *helper)
{
    if (!helper)
        return;
    atomic_store(&helper->stop, true);
    for (unsigned i = 0; i < helper->nthreads; i++)
        sem_post(&helper->work);
    for (unsigned i = 0; i < helper->nthreads; i++)
        pthread_join(helper->threads[i], NULL);
    for (unsigned i = 0; i < IO_HELPER_JOBS; i++)
        sem_destroy(&helper->slots[i].done);
    sem_destroy(&helper->work);
    free(helper);
}

static void io_helper_submit(struct io_helper *helper, const struct io_job *job)
{
    struct slot *slot = &helper->slots[helper->submitted % IO_HELPER_JOBS];

    CHECK(helper->submitted - helper->waited < IO_HELPER_JOBS);
    helper->submitted++;
    slot->job = *job;
    if (helper->nthreads > 0) {
        sem_post(&helper->work);
        return;
    }
    atomic_fetch_add(&helper->begun, 1);
    slot->rc = run_job(helper->fs, job);
    sem_post(&slot->done);
}

/* For the oldest job: 0 or -errno, FS_ENDS when the file ends before. */
static int io_helper_wait(struct io_helper *helper)
{
    struct slot *slot = &helper->slots[helper->waited % IO_HELPER_JOBS];

    CHECK(helper->waited < helper->submitted);
    lock_wait_for(&slot->done);
    helper->waited++;
    return slot->rc;
}

/* ---- buffers ---- */

#define HUGE_PAGE  ((size_t)2 << 20)
#define HASH_BYTES 65536 /* copied and hashed at a time, while they are in the fastest cache */

_Static_assert(LAYER_PIECE_BYTES % (2u << 20) == 0, "pieces are whole huge pages");
_Static_assert(LAYER_MAX_PIECES <= IO_HELPER_JOBS, "every piece may be on its way");
_Static_assert(BLOOM_ROOM_HEAD == FILTERDB_HEADER_BYTES, "a file fits into a layer's room");
_Static_assert(LAYER_PIECE_BYTES >= BLOOM_ROOM_MIN_BYTES, "what has no room is one piece");

int layer_io_init(struct layer_io *io, const struct fsops *fs, uint64_t memory)
{
    uint64_t npieces = memory > LAYER_SMALL_BYTES ? (memory - LAYER_SMALL_BYTES) / LAYER_PIECE_BYTES : 0;

    memset(io, 0, sizeof(*io));
    io->fs = fs;
    io->npieces = npieces < 2 ? 2 : npieces < LAYER_MAX_PIECES ? (unsigned)npieces : LAYER_MAX_PIECES;
    io->small = aligned_alloc(FS_BLOCK, LAYER_SMALL_BYTES);
    io->hash = XXH3_createState();
    if (io->small && io->hash)
        return 0;
    layer_io_deinit(io);
    return -ENOMEM;
}

void layer_io_deinit(struct layer_io *io)
{
    io_helper_stop(io->helper);
    free(io->small);
    if (io->ring)
        munmap(io->ring, io->npieces * (size_t)LAYER_PIECE_BYTES);
    XXH3_freeState(io->hash);
    io->small = io->ring = NULL;
    io->hash = NULL;
    io->helper = NULL;
}

/* Mapped, not allocated: freed memory must leave the process, and the buffers must begin with a huge page. */
static unsigned char *map_ring(size_t len)
{
    unsigned char *raw = mmap(NULL, len + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (raw == MAP_FAILED)
        return NULL;
    size_t lead = (size_t)(-(uintptr_t)raw & (HUGE_PAGE - 1));
    if (lead > 0)
        munmap(raw, lead);
    if (lead < HUGE_PAGE)
        munmap(raw + lead + len, HUGE_PAGE - lead);
    (void)madvise(raw + lead, len, MADV_HUGEPAGE); /* small pages where there are no huge ones */
    return raw + lead;
}

/* Starts this many threads for large files, or as many as the system allows. */
static int get_helper(struct layer_io *io, unsigned nthreads)
{
    if (!io->helper && io_helper_start(&io->helper, io->fs) != 0)
        return -ENOMEM;
    struct io_helper *helper = io->helper;
    CHECK(nthreads <= IO_HELPER_THREADS);
    while (helper->nthreads < nthreads &&
           pthread_create(&helper->threads[helper->nthreads], NULL, helper_main, helper) == 0)
        helper->nthreads++;
    return 0;
}

/* Maps the buffers for large files that are copied. */
static int get_ring(struct layer_io *io)
{
    if (!io->ring)
        io->ring = map_ring(io->npieces * (size_t)LAYER_PIECE_BYTES);
    return io->ring ? 0 : -ENOMEM;
}

static size_t round_up(size_t len)
{
    return (len + FS_BLOCK - 1) & ~(size_t)(FS_BLOCK - 1);
}

static bool is_small(uint64_t size)
{
    return size < LAYER_SMALL_BYTES;
}

static size_t piece_len(uint64_t size, uint64_t offset)
{
    return size - offset < LAYER_PIECE_BYTES ? (size_t)(size - offset) : LAYER_PIECE_BYTES;
}

/* Words of the layer as bytes of its file; `last`: they are not read again. */
static void encode(const struct bloom_layer_view *layer, uint64_t word, size_t n, unsigned char *out, bool last)
{
    enum bloom_variant variant = (enum bloom_variant)layer->shape.variant;
    _Atomic uint64_t words[512];

    if (!layer->still) {
        filterdb_encode_words(variant, layer->words + word, n, out);
        return;
    }
    for (size_t done = 0; done < n; done += 512) {
        size_t some = n - done < 512 ? n - done : 512;
        cuckoo_still_read(layer->still, layer->index, word + done, some, (uint64_t *)(void *)words, last);
        filterdb_encode_words(variant, words, some, out + 8 * done);
    }
}

void layer_encode(const struct bloom_layer_view *layer, unsigned char *out)
{
    filterdb_encode_header(&layer->shape, out);
    encode(layer, 0, (size_t)layer->shape.nwords, out + FILTERDB_HEADER_BYTES, true);
}

/* Encodes the piece of the file at `offset`, a multiple of LAYER_PIECE_BYTES, and adds it to the checksum. */
static size_t make_piece(struct layer_io *io, const struct bloom_layer_view *layer, uint64_t offset, unsigned char *buf)
{
    size_t len = piece_len(filterdb_bytes(layer->shape.nwords), offset);

    io->begun = layer->still;
    for (size_t at = 0; at < len;) {
        size_t part = len - at < HASH_BYTES ? len - at : HASH_BYTES;
        size_t header = 0;

        if (offset + at == 0) {
            filterdb_encode_header(&layer->shape, buf);
            header = FILTERDB_HEADER_BYTES;
        }
        encode(layer, (offset + at + header - FILTERDB_HEADER_BYTES) / 8, (part - header) / 8, buf + at + header, true);
        XXH3_64bits_update(io->hash, buf + at, part);
        at += part;
    }
    return len;
}

static void note_piece(const struct layer_io *io, size_t len)
{
    if (io->wrote)
        io->wrote(io->wrote_ctx, len);
}

static int write_small(struct layer_io *io, int fd, const struct bloom_layer_view *layer)
{
    size_t len = make_piece(io, layer, 0, io->small);
    int rc = fs_write_all(io->fs, fd, io->small, len, 0);

    if (rc == 0)
        note_piece(io, len);
    return rc;
}

static int write_large(struct layer_io *io, int fd, const struct bloom_layer_view *layer, uint64_t size, bool direct)
{
    uint64_t made = 0, under_way = 0; /* under way: pieces */
    size_t at = 0;
    int rc = get_ring(io);

    STEP(rc, get_helper(io, size >= LAYER_HELP_MIN ? 1 : 0));
    if (rc == 0 && layer->still && direct) /* its words are read once: a file that takes no direct writes says so now */
        rc = fs_write_all(io->fs, fd, io->small, FS_BLOCK, 0);

    while (rc == 0 && made < size) {
        if (under_way == io->npieces) {
            under_way--;
            rc = io_helper_wait(io->helper);
            continue;
        }
        unsigned char *buf = io->ring + at * LAYER_PIECE_BYTES;
        size_t len = make_piece(io, layer, made, buf);
        struct io_job job = {.write = true, .fd = fd, .buf = buf, .len = direct ? round_up(len) : len, .offset = made};
        memset(buf + len, 0, job.len - len);
        io_helper_submit(io->helper, &job);
        under_way++;
        at = (at + 1) % io->npieces;
        made += len;
        note_piece(io, len); /* may sleep */
    }
    for (; under_way > 0; under_way--) {
        int wait_rc = io_helper_wait(io->helper);
        rc = rc != 0 ? rc : wait_rc;
    }
    return rc == 0 && direct && size % FS_BLOCK != 0 ? io->fs->truncate(io->fs->ctx, fd, size) : rc;
}

static int write_file(struct layer_io *io, const char *path, const struct bloom_layer_view *layer, bool sync,
                      bool direct)
{
    const struct fsops *fs = io->fs;
    unsigned flags = FS_WRITE | FS_CREATE | FS_EXCLUSIVE | (direct ? FS_DIRECT : 0u);
    int fd;
    TRY(fs->open(fs->ctx, path, flags, &fd));
    uint64_t size = filterdb_bytes(layer->shape.nwords);
    XXH3_64bits_reset(io->hash);
    int rc = is_small(size) ? write_small(io, fd, layer) : write_large(io, fd, layer, size, direct);
    if (rc == 0 && sync)
        rc = fs->sync(fs->ctx, fd);
    int close_rc = fs->close(fs->ctx, fd);
    return rc != 0 ? rc : close_rc;
}

int layer_write(struct layer_io *io, const char *path, const struct bloom_layer_view *layer, bool sync,
                uint64_t *xxh3_out, struct errbuf *err)
{
    bool direct = !is_small(filterdb_bytes(layer->shape.nwords));
    io->begun = false;
    int rc = write_file(io, path, layer, sync, direct);

    if (rc == -EINVAL && direct && !io->begun) { /* this file system, or its block size, cannot */
        (void)io->fs->unlink(io->fs->ctx, path);
        rc = write_file(io, path, layer, sync, false);
    }
    if (rc != 0)
        return errbuf_fail(err, rc, "%s: cannot write: %s", path, fs_error_text(rc));
    *xxh3_out = XXH3_64bits_digest(io->hash);
    return 0;
}

uint64_t layer_digest(struct layer_io *io, const struct bloom_layer_view *layer)
{
    uint64_t size = filterdb_bytes(layer->shape.nwords);
    unsigned char header[FILTERDB_HEADER_BYTES];

    XXH3_64bits_reset(io->hash);
    filterdb_encode_header(&layer->shape, header);
    XXH3_64bits_update(io->hash, header, sizeof(header));
    for (uint64_t at = sizeof(header); at < size;) {
        size_t part = size - at < HASH_BYTES ? (size_t)(size - at) : HASH_BYTES;
        encode(layer, (at - sizeof(header)) / 8, part / 8, io->small, false);
        XXH3_64bits_update(io->hash, io->small, part);
        at += part;
    }
    return XXH3_64bits_digest(io->hash);
}

static int check_header(const unsigned char *bytes, uint64_t size, const struct bloom_shape *expected,
                        struct errbuf *err)
{
    struct bloom_shape shape;

    if (filterdb_decode_header(bytes, size, (enum bloom_variant)expected->variant, &shape, err) != FILTERDB_OK)
        return LAYER_UNUSABLE;
    if (shape.k != expected->k)
        return errbuf_fail(err, LAYER_UNUSABLE, "header says hash count %u, the MANIFEST %u", shape.k, expected->k);
    if (shape.nwords != expected->nwords)
        return errbuf_fail(err, LAYER_UNUSABLE, "header says %llu words, the MANIFEST %llu",
                           (unsigned long long)shape.nwords, (unsigned long long)expected->nwords);
    return LAYER_OK;
}

/* A file that is one piece. No bytes go into the words until the header has shown that they fit. */
static int read_whole(struct layer_io *io, int fd, const struct bloom_layer_view *layer, struct errbuf *err)
{
    size_t size = (size_t)filterdb_bytes(layer->shape.nwords);
    int rc = is_small(size) ? 0 : get_ring(io);
    unsigned char *buf = is_small(size) ? io->small : io->ring;

    STEP(rc, fs_read_some(io->fs, fd, buf, size, round_up(size), 0));
    STEP(rc, check_header(buf, size, &layer->shape, err));
    if (rc != LAYER_OK)
        return rc;
    XXH3_64bits_update(io->hash, buf, size);
    filterdb_decode_words((enum bloom_variant)layer->shape.variant, buf + FILTERDB_HEADER_BYTES, layer->shape.nwords,
                          layer->words);
    return 0;
}

static bool is_zero(const unsigned char *bytes, size_t len)
{
    return bytes[0] == 0 && memcmp(bytes, bytes + 1, len - 1) == 0;
}

/* The piece of the file at `offset` has been read into its place: hashes it, and turns it into words. */
static void take_piece(struct layer_io *io, const struct bloom_layer_view *layer, uint64_t offset, size_t len)
{
    unsigned char *piece = layer->room + offset;
    enum bloom_variant variant = (enum bloom_variant)layer->shape.variant;

    for (size_t at = 0; at < len;) {
        size_t part = len - at < HASH_BYTES ? len - at : HASH_BYTES;
        size_t header = offset + at == 0 ? FILTERDB_HEADER_BYTES : 0;

        XXH3_64bits_update(io->hash, piece + at, part);
        filterdb_turn_words(variant, layer->words + (offset + at + header - FILTERDB_HEADER_BYTES) / 8,
                            (part - header) / 8);
        at += part;
    }
    if (len == LAYER_PIECE_BYTES && is_zero(piece, len))
        bloom_room_empty(piece, len); /* a filter with few used pages stays small */
}

/* Reads ask for whole blocks, because direct ones must, also at the end. */
static int read_into_room(struct layer_io *io, int fd, const struct bloom_layer_view *layer, struct errbuf *err)
{
    uint64_t size = filterdb_bytes(layer->shape.nwords), asked = 0, taken = 0;
    unsigned under_way = 0;
    int rc = get_helper(io, size < LAYER_HELP_MIN ? 0 : size < LAYER_SHARE_MIN ? 1 : IO_HELPER_THREADS);

    while (rc == 0 && taken < size) {
        if (asked < size && under_way < LAYER_MAX_PIECES) {
            size_t len = piece_len(size, asked);
            struct io_job job = {
                .fd = fd, .buf = layer->room + asked, .len = round_up(len), .need = len, .offset = asked};
            io_helper_submit(io->helper, &job);
            under_way++;
            asked += len;
            continue;
        }
        rc = io_helper_wait(io->helper);
        under_way--;
        if (rc == 0 && taken == 0)
            rc = check_header(layer->room, size, &layer->shape, err);
        if (rc == 0)
            take_piece(io, layer, taken, piece_len(size, taken));
        taken += piece_len(size, taken);
    }
    for (; under_way > 0; under_way--)
        (void)io_helper_wait(io->helper);
    return rc;
}

static int read_pieces(struct layer_io *io, int fd, const struct bloom_layer_view *layer, uint64_t size,
                       struct errbuf *err)
{
    size_t head = size < FILTERDB_HEADER_BYTES ? (size_t)size : FILTERDB_HEADER_BYTES;

    XXH3_64bits_reset(io->hash);
    if (size == filterdb_bytes(layer->shape.nwords))
        return layer->room ? read_into_room(io, fd, layer, err) : read_whole(io, fd, layer, err);
    TRY(fs_read_some(io->fs, fd, io->small, head, FS_BLOCK, 0));
    return check_header(io->small, size, &layer->shape, err);
}

static int read_file(struct layer_io *io, const char *path, const struct bloom_layer_view *layer, bool direct,
                     struct errbuf *err)
{
    const struct fsops *fs = io->fs;
    uint64_t size = 0;
    int fd;
    TRY(fs->open(fs->ctx, path, FS_READ | (direct ? FS_DIRECT : 0u), &fd));
    int rc = fs->size(fs->ctx, fd, &size);
    STEP(rc, read_pieces(io, fd, layer, size, err));
    fs->close(fs->ctx, fd);
    return rc;
}

static int check_digest(uint64_t found, uint64_t xxh3, struct errbuf *err)
{
    if (found == xxh3)
        return LAYER_OK;
    return errbuf_fail(err, LAYER_UNUSABLE,
                       "checksum is %016llx, the MANIFEST says %016llx: the file has been changed or damaged",
                       (unsigned long long)found, (unsigned long long)xxh3);
}

int layer_check(const unsigned char *head, uint64_t size, const struct bloom_shape *expected, uint64_t found,
                uint64_t xxh3, struct errbuf *err)
{
    int rc = check_header(head, size, expected, err);
    return rc == LAYER_OK ? check_digest(found, xxh3, err) : rc;
}

int layer_decode(const unsigned char *bytes, const struct bloom_layer_view *layer, uint64_t xxh3, struct errbuf *err)
{
    size_t size = (size_t)filterdb_bytes(layer->shape.nwords);
    int rc = layer_check(bytes, size, &layer->shape, XXH3_64bits(bytes, size), xxh3, err);

    if (rc == LAYER_OK)
        filterdb_decode_words((enum bloom_variant)layer->shape.variant, bytes + FILTERDB_HEADER_BYTES,
                              layer->shape.nwords, layer->words);
    return rc;
}

int layer_read(struct layer_io *io, const char *path, const struct bloom_layer_view *layer, uint64_t xxh3,
               struct errbuf *err)
{
    bool direct = !is_small(filterdb_bytes(layer->shape.nwords));
    int rc = read_file(io, path, layer, direct, err);

    if (rc == -EINVAL && direct)
        rc = read_file(io, path, layer, false, err);
    if (rc == -ENOENT)
        errbuf_set(err, "missing");
    else if (rc < 0)
        errbuf_set(err, "cannot read: %s", fs_error_text(rc));
    return rc != 0 ? rc : check_digest(XXH3_64bits_digest(io->hash), xxh3, err);
}
