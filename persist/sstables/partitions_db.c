#include "sstable_files.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "bytes.h"
#include "alloc.h"
#include "errbuf.h"

#define FOOTER    24 /* of the file: where the first key is, the number of keys, the root */
#define NODE_HEAD 3
#define STEPS_MAX 100000 /* more than a key of 65,535 bytes can have */

/* A node with children or payload left. `next` 0: its payload; i: child i - 1, in the direction of the walk. */
struct partitions_step {
    uint64_t at;
    unsigned next;
};

struct node {
    uint64_t at;
    unsigned children, bits; /* of a pointer */
    uint64_t pointers;       /* where they are */
    bool dense;              /* a pointer of 0 is no child */
    unsigned payload_bits;
    uint64_t payload;
};

static int damaged(const struct partitions_db *trie, uint64_t at, const char *what, struct errbuf *err)
{
    return errbuf_fail(err, SSTABLE_KEYS_DAMAGED,
                       "Partitions.db is damaged: the node at byte %" PRIu64 " of %" PRIu64 " %s", at, trie->size,
                       what);
}

/* ---- bytes of the file ---- */

/* Has the page in its slot. 0 or -errno. */
static int load_page(struct partitions_db *trie, uint64_t page, const unsigned char **out)
{
    size_t slot = page % PARTITIONS_PAGES;
    unsigned char *bytes = trie->pages + slot * PARTITIONS_PAGE;
    *out = bytes;
    if (trie->in_slot[slot] == page)
        return 0;
    trie->in_slot[slot] = UINT64_MAX;
    uint64_t from = page * PARTITIONS_PAGE, left = trie->size - from;
    int rc = fs_read_all(trie->fs, trie->fd, bytes, left < PARTITIONS_PAGE ? (size_t)left : PARTITIONS_PAGE, from);
    if (rc == 0)
        trie->in_slot[slot] = page;
    return rc;
}

/* Copies bytes of the trie. 0; -ERANGE: it ends before; or -errno. */
static int copy(struct partitions_db *trie, uint64_t at, unsigned char *out, size_t len)
{
    uint64_t end = trie->size - FOOTER;
    if (at > end || len > end - at)
        return -ERANGE;
    while (len > 0) {
        const unsigned char *page;
        size_t begin = at % PARTITIONS_PAGE, n = PARTITIONS_PAGE - begin;
        TRY(load_page(trie, at / PARTITIONS_PAGE, &page));
        n = n < len ? n : len;
        memcpy(out, page + begin, n);
        out += n;
        at += n;
        len -= n;
    }
    return 0;
}

/* A number of 1 to 8 bytes, big-endian. */
static int read_number(struct partitions_db *trie, uint64_t at, unsigned bytes, uint64_t *out)
{
    unsigned char b[8];
    int rc = copy(trie, at, b, bytes);
    *out = 0;
    for (unsigned i = 0; rc == 0 && i < bytes; i++)
        *out = *out << 8 | b[i];
    return rc;
}

/* ---- nodes ---- */

enum node_form { PAYLOAD_ONLY, SHORT_SINGLE, SINGLE, SPARSE, DENSE };

/* By the upper four bits of the first byte. */
static const struct {
    unsigned char form, bits;
} types[16] = {
    {PAYLOAD_ONLY, 0}, {SHORT_SINGLE, 4}, {SINGLE, 8},  {SHORT_SINGLE, 12}, {SINGLE, 16}, {SPARSE, 8},
    {SPARSE, 12},      {SPARSE, 16},      {SPARSE, 24}, {SPARSE, 40},       {DENSE, 12},  {DENSE, 16},
    {DENSE, 24},       {DENSE, 32},       {DENSE, 40},  {DENSE, 64},
};

/* 0; -ERANGE: it is no node; or -errno. */
static int read_node(struct partitions_db *trie, uint64_t at, struct node *node)
{
    unsigned char head[NODE_HEAD] = {0};
    *node = (struct node){.at = at};
    uint64_t end = trie->size - FOOTER;
    size_t n = at < end && end - at < sizeof(head) ? (size_t)(end - at) : sizeof(head);
    TRY(copy(trie, at, head, n));
    unsigned form = types[head[0] >> 4].form;
    node->bits = types[head[0] >> 4].bits;
    node->payload_bits = head[0] & 0x0f;
    switch (form) {
    case PAYLOAD_ONLY:
        node->payload = at + 1;
        return 0;
    case SHORT_SINGLE: /* the pointer begins in the lower four bits */
        node->children = 1;
        node->payload_bits = 0;
        node->pointers = at;
        return 0;
    case SINGLE:
        node->children = 1;
        node->pointers = at + 2;
        break;
    case SPARSE:
        node->children = head[1];
        node->pointers = at + 2 + head[1];
        break;
    default:
        node->children = head[2] + 1U;
        node->pointers = at + 3;
        node->dense = true;
        break;
    }
    node->payload = node->pointers + (node->children * node->bits + 7) / 8;
    return 0;
}

/* The distance by which a child precedes its node; 0: none. */
static int read_distance(struct partitions_db *trie, const struct node *node, unsigned child, uint64_t *out)
{
    unsigned bytes = (node->bits + 7) / 8;
    if (node->bits != 12 && node->bits != 4)
        return read_number(trie, node->pointers + (uint64_t)child * bytes, bytes, out);
    int rc = read_number(trie, node->pointers + child * 12 / 8, bytes, out);
    if (node->bits == 4)
        *out &= 0x0f;
    else /* of two in three bytes; a single one has the lower bits */
        *out = node->pointers != node->at && child % 2 == 0 ? *out >> 4 : *out & 0xfff;
    return rc;
}

/* A hash if the bits are 8 or more; then a signed number, which is negative for places in Data.db. */
static int read_place(struct partitions_db *trie, const struct node *node, struct partition_place *place)
{
    uint64_t at = node->payload, value;
    unsigned bytes = node->payload_bits;
    place->has_hash = bytes >= 8;
    if (place->has_hash) {
        TRY(copy(trie, at, &place->hash, 1));
        bytes -= 7;
        at++;
    }
    TRY(read_number(trie, at, bytes, &value));
    place->in_rows = !(value >> (8 * bytes - 1));
    place->offset = place->in_rows ? value : ~(value | (bytes < 8 ? ~UINT64_C(0) << (8 * bytes) : 0));
    return 0;
}

/* ---- the walk ---- */

static int push(struct partitions_db *trie, uint64_t at)
{
    if (trie->nsteps == STEPS_MAX)
        return -ERANGE;
    TRY(GROW(trie->steps, trie->nsteps, trie->steps_size));
    trie->steps[trie->nsteps++] = (struct partitions_step){at, 0};
    return 0;
}

/* Goes to the node's next child, if it has one. */
static int descend(struct partitions_db *trie, const struct node *node)
{
    struct partitions_step *step = &trie->steps[trie->nsteps - 1];
    uint64_t distance = 0;
    while (distance == 0 && step->next <= node->children) {
        unsigned i = step->next - 1;
        int rc = read_distance(trie, node, trie->backwards ? node->children - 1 - i : i, &distance);
        if (rc != 0 || distance > node->at || (distance == 0 && !node->dense))
            return rc != 0 ? rc : -ERANGE;
        step->next++;
    }
    if (step->next > node->children)
        trie->nsteps--; /* the whole node has been visited */
    return distance ? push(trie, node->at - distance) : 0;
}

static int visit(struct partitions_db *trie, struct partition_place *place_out, bool *found_out, struct errbuf *err)
{
    struct partitions_step *step = &trie->steps[trie->nsteps - 1];
    struct node node;
    uint64_t at = step->at;
    bool first = step->next == 0;
    if (first && ++trie->visited > trie->size)
        return damaged(trie, at, "is one of more nodes than fit in the file", err);
    int rc = read_node(trie, at, &node);
    if (rc == 0 && first) {
        step->next = 1;
        *found_out = node.payload_bits > 0;
        if (*found_out)
            rc = read_place(trie, &node, place_out);
        if (node.children == 0)
            trie->nsteps--;
    } else if (rc == 0) {
        rc = descend(trie, &node);
    }
    return rc == -ERANGE ? damaged(trie, at, "points or reaches out of the trie", err) : rc;
}

int partitions_db_next(struct partitions_db *trie, struct partition_place *place_out, struct errbuf *err)
{
    bool found = false;
    while (trie->nsteps && !found) {
        TRY(visit(trie, place_out, &found, err));
    }
    if (found && ++trie->found <= trie->keys)
        return SSTABLE_KEYS_ONE;
    if (trie->found == trie->keys)
        return SSTABLE_KEYS_END;
    return errbuf_fail(err, SSTABLE_KEYS_DAMAGED,
                       "Partitions.db is damaged: its end says %" PRIu64 " keys, and its trie has %s", trie->keys,
                       found ? "more" : "fewer");
}

static int read_footer(struct partitions_db *trie, struct errbuf *err)
{
    unsigned char footer[FOOTER];
    if (trie->size < FOOTER)
        return errbuf_fail(err, SSTABLE_KEYS_DAMAGED, "Partitions.db is damaged: %" PRIu64 " bytes are too few",
                           trie->size);
    TRY(fs_read_all(trie->fs, trie->fd, footer, FOOTER, trie->size - FOOTER));
    trie->keys = be64_get(footer + 8);
    trie->root = be64_get(footer + 16);
    if (trie->root < trie->size - FOOTER)
        return push(trie, trie->root);
    return errbuf_fail(err, SSTABLE_KEYS_DAMAGED,
                       "Partitions.db is damaged: its end says that its root is at byte %" PRIu64 " of %" PRIu64,
                       trie->root, trie->size);
}

int partitions_db_open(struct partitions_db *trie, const struct fsops *fs, const char *path, struct errbuf *err)
{
    *trie = (struct partitions_db){.fs = fs, .fd = -1};
    memset(trie->in_slot, 0xff, sizeof(trie->in_slot));
    int rc = fs->open(fs->ctx, path, FS_READ, &trie->fd);
    if (rc != 0) {
        trie->fd = -1;
        return rc;
    }
    rc = fs->size(fs->ctx, trie->fd, &trie->size);
    trie->pages = rc == 0 ? malloc((size_t)PARTITIONS_PAGES * PARTITIONS_PAGE) : NULL;
    STEP(rc, trie->pages ? read_footer(trie, err) : -ENOMEM);
    if (rc != 0)
        partitions_db_close(trie);
    return rc;
}

void partitions_db_close(struct partitions_db *trie)
{
    if (trie->fd >= 0)
        trie->fs->close(trie->fs->ctx, trie->fd);
    free(trie->pages);
    free(trie->steps);
    trie->pages = NULL;
    trie->steps = NULL;
    trie->fd = -1;
}
