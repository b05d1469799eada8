/* manifest: the text of a MANIFEST file (docs/FORMAT.md), the list of a data directory's contents. It has one line per
 * filter and one per layer, then a line about the save. The last line has the count of filters and the XXH3 of all
 * earlier bytes.
 *
 * It opens no file: the parser accepts bytes in pieces of any size, the formatter appends to a text. Every value has
 * one form only: the parser refuses leading zeros, other encodings of a name, and extra spaces. So reading and writing
 * a MANIFEST yields the same bytes.
 *
 * Lifetime: caller's storage, init to deinit. Thread: any, on distinct objects. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <xxhash.h>

#include "bloom_filter.h"
#include "bloom_window.h"
#include "buf.h"
#include "database.h"
#include "errbuf.h"

#define MANIFEST_NAME     "MANIFEST"
#define MANIFEST_MAGIC    "bloomery-manifest 1" /* the version is raised with each new field, variant or kind of line */
#define MANIFEST_MAX_NAME 65535
#define MANIFEST_MAX_LINE (3 * MANIFEST_MAX_NAME + 4096)

/* Of file numbers, ids and positions of the log. Counting one by one cannot reach it; so a MANIFEST that has been
 * tampered with cannot make the next number wrap around. */
#define MANIFEST_MAX_NUMBER (UINT64_C(1) << 62)

/* Of the layers of a filter that is in a pack, as Filter.db files, together. */
#define MANIFEST_MAX_PACKED 65536

/* ---- the names of Bloomery's files in `filters` ----
 *
 * Each has a number that is used once in the life of a data directory, so a name never means two files.
 *
 *     <layout>-<number>-big-Filter.db   a layer of a filter; the layout, na, me or ka, has Cassandra's spelling
 *     <layout>-<number>.layer           the same in RedisBloom's layout, redisbloom or redisbloom32
 *     <number>.pack                     many small filters (pack.h)
 *     <number>.saved                    empty: the save of this number took place
 *
 * Files with other names are not the store's and are never touched. */

#define FILTERS_DIR    "filters"
#define FILE_NAME_SIZE 48

enum file_kind { FILE_LAYER, FILE_PACK, FILE_SAVED };

struct file_name {
    enum file_kind kind;
    enum bloom_variant variant; /* of a layer; otherwise 0 */
    uint64_t number;
};

void file_name_format(const struct file_name *name, char out[FILE_NAME_SIZE]);

/* False: not a name of ours. Each name has one spelling. */
bool file_name_parse(const char *text, struct file_name *out);

/* ---- records ---- */

enum manifest_status {
    MANIFEST_OK = 0,
    MANIFEST_DAMAGED = 1, /* the errbuf has the fault and the line */
    MANIFEST_NEWER = 2,   /* likewise: of a version that is not known here */
};

/* In each message about a file of an unknown version, before the reason. Such a file is refused and left as it is: its
 * records must neither be dropped nor read in part. */
#define WRITTEN_BY_NEWER "written by a newer version of Bloomery (start that one)"

struct manifest_layer {
    struct bloom_shape shape; /* of the filter's variant */
    uint64_t items;
    uint64_t xxh3;          /* of the file, header included */
    uint64_t file;          /* its number; of a layer in a pack 0 */
    struct bloom_turn turn; /* of a window or a cuckoo filter only */
};

struct manifest_filter {
    uint64_t id;
    const char *name; /* its key (database.h) */
    size_t name_len;
    uint64_t pack;        /* number of the pack that its layers are in, one after the other; 0: files of their own */
    uint64_t pack_offset; /* of the first layer in the pack */
    struct bloom_params params;
    enum bloom_variant variant;
    int64_t expires_ms;
    uint64_t text_offset; /* where its lines are in the text: set by the parser, not checked by the formatter */
    size_t text_len;
    unsigned nlayers;
    struct manifest_layer layers[BLOOM_MAX_LAYERS];
};

/* Its size with the existing layers: room for all is 64 KB. */
void manifest_filter_copy(struct manifest_filter *to, const struct manifest_filter *from);

/* The lines about the save as a whole: one for each of the clients' numbers of databases that represents another one,
 * ascending, and the last. */
struct manifest_save {
    uint64_t number;   /* the highest number given out to a file, a pack or a save */
    uint64_t next_id;  /* the id of the next new filter */
    uint64_t log;      /* first segment of the log that is needed beside this; 0: none */
    uint64_t control;  /* control records up to this one are reflected */
    uint64_t frame;    /* frames of the log up to this one were on the disk before this was; 0: not known, or none */
    uint64_t accepted; /* segments of the log below this number may be damaged: the loss has been accepted; 0: none */
    struct databases databases;
};

/* Whether these numbers are in a MANIFEST's range: a save must be readable, and the next counts on. 0 or -EOVERFLOW. */
int manifest_check_numbers(const struct manifest_save *save, struct errbuf *err);

/* Bytes of all layers as Filter.db files. */
uint64_t manifest_filter_bytes(const struct manifest_filter *filter);

/* The highest number among its files, or that of its pack. */
uint64_t manifest_filter_newest(const struct manifest_filter *filter);

/* The file of layer i of a filter that is in no pack. */
static inline struct file_name manifest_layer_file(const struct manifest_filter *filter, unsigned i)
{
    return (struct file_name){FILE_LAYER, filter->variant, filter->layers[i].file};
}

/* ---- formatting ---- */

/* Each appends whole lines. Without memory the buffer has failed (buf.h). */
void manifest_format_magic(struct buf *text);
void manifest_format_filter(struct buf *text, const struct manifest_filter *filter);
void manifest_format_gone(struct buf *text, uint64_t id); /* the records of this id before it are void */
void manifest_format_save(struct buf *text, const struct manifest_save *save);
void manifest_format_end(struct buf *text, uint64_t nfilters, uint64_t xxh3);

#define MANIFEST_RATE_SIZE 32
void manifest_format_rate(double rate,
                          char out[MANIFEST_RATE_SIZE]); /* the one form of a rate, or another real number */

/* ---- parsing ---- */

/* Called for each entry as soon as it is complete. Slices are valid during the call. A nonzero return ends the feed and
 * is returned by it. Without on_gone such a line is MANIFEST_DAMAGED: the text is that of a filter. */
struct manifest_sink {
    int (*on_filter)(void *ctx, const struct manifest_filter *filter, struct errbuf *err);
    int (*on_gone)(void *ctx, uint64_t id, struct errbuf *err);
    void *ctx;
};

struct manifest_real {
    char text[MANIFEST_RATE_SIZE];
    size_t len; /* 0: none */
    double value;
};

struct manifest_parser {
    struct manifest_save save; /* valid once its line has been read */
    uint64_t nfilters;         /* valid ones */
    uint64_t line_number;      /* of the line being read, from 1 */
    uint64_t end_offset;       /* of the last line, valid once it has been read */
    uint64_t digest;           /* XXH3-64 of all lines before that one, likewise */

    /* internal */
    const struct manifest_sink *sink;
    int state;
    uint64_t offset; /* of the line being read */
    unsigned layers_read;
    unsigned databases_read; /* the highest client's number so far, plus one; 0: none */
    uint64_t highest;        /* number of a file so far */
    struct manifest_filter filter;
    struct buf line;                /* the beginning of a line whose end has not come yet */
    struct manifest_real rate, bpe; /* as last read */
    char *name;
    size_t name_size;
    XXH3_state_t *hash;
};

/* For a whole MANIFEST. 0 or -ENOMEM. */
int manifest_parser_init(struct manifest_parser *parser, const struct manifest_sink *sink);

/* For records of filters out of the middle of a MANIFEST that has been verified as a whole, or out of the log; feeding
 * starts at a record's offset. Restarting continues at another one. */
void manifest_parser_init_at(struct manifest_parser *parser, const struct manifest_sink *sink, uint64_t offset);
void manifest_parser_restart(struct manifest_parser *parser, uint64_t offset);
void manifest_parser_deinit(struct manifest_parser *parser);

/* An enum manifest_status, -ENOMEM, or the result of a callback. */
int manifest_parser_feed(struct manifest_parser *parser, const char *bytes, size_t len, struct errbuf *err);

/* The end of the file: MANIFEST_OK only if the last line was there and right, otherwise MANIFEST_DAMAGED. */
int manifest_parser_finish(struct manifest_parser *parser, struct errbuf *err);
