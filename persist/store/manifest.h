/* manifest: the text of a MANIFEST file (docs/FORMAT.md): what a data directory holds, one line per filter and one per
 * layer, ended by a line with the counts and the XXH3 of everything before it.
 *
 * It opens no file: the parser is fed bytes in pieces of any size, the formatter appends to a text. Everything has one
 * form only: a number with a leading zero, a name encoded in another way, a space too many are refused, so that what is
 * read and written again is the same bytes.
 *
 * Lifetime: caller's storage, init to deinit. Thread: any, on distinct objects. */
#ifndef BLOOMERY_MANIFEST_H
#define BLOOMERY_MANIFEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <xxhash.h>

#include "bloom_filter.h"
#include "errbuf.h"
#include "name_code.h"

#define MANIFEST_MAX_NAME 65535
#define MANIFEST_MAX_LINE (3 * MANIFEST_MAX_NAME + 4096)

/* Of generations, ids and positions of the log. Far beyond what can be counted up to one by one; so a MANIFEST that has
 * been tampered with cannot make the next number wrap around. */
#define MANIFEST_MAX_NUMBER (UINT64_C(1) << 62)

/* Of the layers of a filter that is in a pack, as Filter.db files, together. */
#define MANIFEST_MAX_PACKED 65536

enum manifest_status {
    MANIFEST_OK = 0,
    MANIFEST_DAMAGED = 1, /* the errbuf says what is wrong, and in which line */
};

struct manifest_layer {
    uint64_t nwords;
    uint64_t items;
    uint64_t xxh3;       /* of the file, header included */
    uint64_t generation; /* of the filter's files when this one was written; part of its temporary name */
    uint8_t k;
};

struct manifest_filter {
    uint64_t id;
    const char *name;
    size_t name_len;
    char dir[NAME_DIR_MAX + 1]; /* under filters/; written only when it is not name_dir() of the name and the id */
    uint64_t pack;        /* number of the pack that its layers are in, one behind the other; 0: files of its own */
    uint64_t pack_offset; /* of the first layer in the pack */
    struct bloom_params params;
    enum bloom_variant variant;
    int64_t expires_ms;
    unsigned nlayers;
    struct manifest_layer layers[BLOOM_MAX_LAYERS];
};

/* Files that this save has made superfluous. What is to be done with them stands in the MANIFEST so that a start after a
 * crash can do it. */
struct manifest_removed {
    bool keep;       /* moved to quarantine/, not deleted */
    uint64_t id;
    const char *dir; /* name of the directory under filters/ */
    size_t dir_len;
    unsigned nlayers; /* files 0 .. nlayers - 1 were the filter's */
    uint64_t generations[BLOOM_MAX_LAYERS]; /* of these files */
    unsigned placed;  /* of these, files 0 .. placed - 1 have (or had) their final names */
    unsigned shared;  /* final names 0 .. shared - 1 belong to another filter of the same directory now */
    uint64_t owner;   /* newest generation of that other filter's files; 0 when there is none */

    /* Of a filter that was in a pack, instead of the fields from `generations` on: */
    uint64_t pack; /* 0: it had files of its own */
    uint64_t pack_offset;
    uint64_t sizes[BLOOM_MAX_LAYERS]; /* of the layers, as Filter.db files */
};

/* The line about the save as a whole. */
struct manifest_save {
    uint64_t generation; /* the highest one given out */
    uint64_t next_id;
    uint64_t log;     /* first segment of the log that is needed beside this; 0: none */
    uint64_t control; /* control records up to this one are reflected */
    uint64_t frame;   /* frames of the log up to this one were on the disk before this was; 0: it does not say, or there were none */
    uint64_t accepted; /* segments of the log below this number may be damaged: the loss has been accepted; 0: none */
};

/* Bytes of all layers as Filter.db files. */
uint64_t manifest_filter_bytes(const struct manifest_filter *filter);

/* ---- formatting ---------------------------------------------------------------------------------------------------- */

struct manifest_text {
    char *ptr; /* owned; not NUL-terminated */
    size_t len;
    size_t size;
};

void manifest_text_deinit(struct manifest_text *text);

/* Each appends whole lines. 0 or -ENOMEM (nothing appended). */
int manifest_format_header(struct manifest_text *text, const struct manifest_save *save);
int manifest_format_filter(struct manifest_text *text, const struct manifest_filter *filter);
int manifest_format_removed(struct manifest_text *text, const struct manifest_removed *removed);
int manifest_format_end(struct manifest_text *text, uint64_t nfilters, uint64_t nremoved, uint64_t xxh3);

/* ---- parsing ------------------------------------------------------------------------------------------------------- */

/* Called for each entry as soon as it is complete, with the offset of its first line. Slices are valid during the call. A
 * nonzero return ends the feed and is returned by it. Without on_removed a removed filter is MANIFEST_DAMAGED: the text
 * is that of a filter. */
struct manifest_sink {
    int (*on_filter)(void *ctx, const struct manifest_filter *filter, uint64_t offset, struct errbuf *err);
    int (*on_removed)(void *ctx, const struct manifest_removed *removed, uint64_t offset, struct errbuf *err);
    void *ctx;
};

struct manifest_parser {
    struct manifest_save save; /* valid once the header has been read */
    uint64_t nfilters;
    uint64_t nremoved;
    uint64_t line_number; /* of the line being read, from 1 */
    uint64_t end_offset;  /* of the last line, valid once it has been read */
    uint64_t digest;      /* XXH3-64 of all lines before that one, likewise */

    /* internal */
    const struct manifest_sink *sink;
    int state;
    int version;
    uint64_t offset; /* of the line being read */
    uint64_t entry_offset;
    unsigned layers_read;
    struct manifest_filter filter;
    struct manifest_text line; /* the beginning of a line whose end has not come yet */
    char *name;
    size_t name_size;
    XXH3_state_t *hash;
};

/* For a whole MANIFEST, of this version or of versions 2 and 3. 0 or -ENOMEM. */
int manifest_parser_init(struct manifest_parser *parser, const struct manifest_sink *sink);

/* For entries out of the middle of a MANIFEST that has been verified as a whole; feeding starts at an entry's offset.
 * Restarting goes on at another one. */
int manifest_parser_init_at(struct manifest_parser *parser, const struct manifest_sink *sink, uint64_t offset);
void manifest_parser_restart(struct manifest_parser *parser, uint64_t offset);
void manifest_parser_deinit(struct manifest_parser *parser);

/* MANIFEST_OK, MANIFEST_DAMAGED, -ENOMEM, or what a callback returned. */
int manifest_parser_feed(struct manifest_parser *parser, const char *bytes, size_t len, struct errbuf *err);

/* The end of the file: MANIFEST_OK only if the last line was there and right. */
int manifest_parser_finish(struct manifest_parser *parser, struct errbuf *err);

#endif
