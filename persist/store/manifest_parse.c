/* Parsing. Lines are taken whole; a line that is cut by the end of a piece is kept until its rest comes. The last line
 * is not parsed but compared: only one text is right for the lines before it. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "manifest.h"
#include "name_code.h"
#include "check.h"
#include "errbuf.h"
#include "bloom_layout.h"

/* AT_ENTRY: a filter, a gone one or the save comes; AT_LAYER: a layer of the filter; AT_LAST: the last line. */
enum state { AT_MAGIC, AT_ENTRY, AT_LAYER, AT_LAST, AT_END };

/* As bloom_turn_valid() has it. */
#define MANIFEST_MAX_TURN ((UINT64_C(1) << 60) - 1)

#define MANIFEST_MAX_OPTIONS BLOOM_OPTIONS

/* ---- one line ---- */

/* A cursor in a line. It keeps the first fault; the rest of the line is then skipped. */
struct scan {
    const char *begin, *p, *end;
    const char *expected; /* NULL while there is no fault */
};

/* Inline: the length and the bytes of a constant text then cost no call. A MANIFEST has a million lines. */
static inline void scan_text(struct scan *scan, const char *text)
{
    size_t len = strlen(text);

    if (scan->expected)
        return;
    if ((size_t)(scan->end - scan->p) < len || memcmp(scan->p, text, len) != 0)
        scan->expected = text;
    else
        scan->p += len;
}

static uint64_t scan_digits(struct scan *scan, const char *key, uint64_t min, uint64_t max)
{
    const char *p = scan->p;
    const char *few = scan->end - p > 19 ? p + 19 : scan->end; /* this many digits always fit */
    uint64_t value = 0;
    bool fits = true;

    for (; p < few && (unsigned char)(*p - '0') <= 9; p++)
        value = value * 10 + (unsigned char)(*p - '0');
    for (; p < scan->end && *p >= '0' && *p <= '9' && fits; p++)
        fits =
            !__builtin_mul_overflow(value, 10, &value) && !__builtin_add_overflow(value, (uint64_t)(*p - '0'), &value);
    if (p == scan->p || !fits || value < min || value > max || (*scan->p == '0' && p > scan->p + 1))
        scan->expected = key;
    scan->p = p;
    return scan->expected ? min : value;
}

static inline uint64_t scan_number(struct scan *scan, const char *key, uint64_t min, uint64_t max)
{
    scan_text(scan, key);
    return scan->expected ? min : scan_digits(scan, key, min, max);
}

static uint64_t scan_hex(struct scan *scan, const char *key)
{
    uint64_t value = 0;

    scan_text(scan, key);
    if (scan->expected)
        return 0;
    const char *p = scan->p, *end = scan->end - p > 16 ? p + 16 : scan->end;
    for (; p < end; p++) {
        unsigned digit = (unsigned char)(*p - '0');
        if (digit > 9 && (digit = (unsigned char)(*p - 'a') + 10u) > 15)
            break;
        value = value << 4 | digit;
    }
    if (p - scan->p != 16)
        scan->expected = key;
    scan->p = p;
    return scan->expected ? 0 : value;
}

/* Up to the next space or the end of the line. */
static const char *scan_word(struct scan *scan, const char *key, size_t *len_out)
{
    *len_out = 0;
    scan_text(scan, key);
    if (scan->expected)
        return scan->p;
    const char *start = scan->p;
    const char *space = memchr(start, ' ', (size_t)(scan->end - start));
    scan->p = space ? space : scan->end;
    *len_out = (size_t)(scan->p - start);
    return start;
}

/* A number above 0 and below `limit`. `last`: the one that was read before; most filters have its text. */
static double scan_real(struct scan *scan, const char *key, double limit, struct manifest_real *last)
{
    char canonical[MANIFEST_RATE_SIZE];
    size_t len;
    const char *word = scan_word(scan, key, &len);

    if (scan->expected || (len > 0 && len == last->len && memcmp(word, last->text, len) == 0 && last->value < limit))
        return scan->expected ? 0 : last->value;
    scan->expected = key;
    last->len = 0;
    if (len == 0 || len >= sizeof(last->text) || memchr(word, '\0', len))
        return 0;
    memcpy(last->text, word, len);
    last->text[len] = '\0';
    last->value = strtod(last->text, NULL);
    if (!(last->value > 0 && last->value < limit))
        return 0;
    manifest_format_rate(last->value, canonical);
    if (strcmp(last->text, canonical) != 0)
        return 0;
    scan->expected = NULL;
    last->len = len;
    return last->value;
}

static enum bloom_variant scan_variant(struct scan *scan, const char *key)
{
    enum bloom_variant variant = BLOOM_NA;
    size_t len;
    const char *word = scan_word(scan, key, &len);

    if (!scan->expected && !bloom_variant_parse(word, len, &variant))
        scan->expected = key;
    return variant;
}

static int scan_end(struct scan *scan, const char *what, struct errbuf *err)
{
    if (!scan->expected && scan->p != scan->end)
        scan->expected = "the end of the line";
    if (!scan->expected)
        return MANIFEST_OK;
    return errbuf_fail(err, MANIFEST_DAMAGED, "not %s: expected '%s' with a valid value at column %zu", what,
                       scan->expected[0] == ' ' ? scan->expected + 1 : scan->expected,
                       (size_t)(scan->p - scan->begin) + 1);
}

/* ---- entries ---- */

static int parse_name(struct manifest_parser *parser, struct scan *scan)
{
    size_t encoded;
    const char *word = scan_word(scan, " name=", &encoded);

    if (scan->expected)
        return 0;
    if (parser->name_size < encoded) {
        char *name = realloc(parser->name, encoded);
        if (!name)
            return -ENOMEM;
        parser->name = name;
        parser->name_size = encoded;
    }
    parser->filter.name = encoded > 0 ? parser->name : "";
    if (!name_decode(word, encoded, parser->name, &parser->filter.name_len) ||
        parser->filter.name_len > MANIFEST_MAX_NAME)
        scan->expected = " name=";
    return 0;
}

static bool comes_next(const struct scan *scan, const char *key)
{
    return !scan->expected && (size_t)(scan->end - scan->p) >= strlen(key) && memcmp(scan->p, key, strlen(key)) == 0;
}

static void parse_pack(struct manifest_parser *parser, struct scan *scan)
{
    parser->filter.pack = parser->filter.pack_offset = 0;
    if (!comes_next(scan, " pack="))
        return;
    parser->filter.pack = scan_number(scan, " pack=", 1, MANIFEST_MAX_NUMBER);
    parser->filter.pack_offset = scan_number(scan, " offset=", 0, MANIFEST_MAX_NUMBER);
}

static void parse_window(struct manifest_filter *filter, struct scan *scan)
{
    if (!comes_next(scan, " window="))
        return;
    filter->params.window = scan_number(scan, " window=", 1, BLOOM_WINDOW_MAX_US);
    filter->params.window_parts = (uint16_t)scan_number(scan, " parts=", 1, BLOOM_WINDOW_MAX_PARTS);
    filter->params.window_flags = (uint8_t)scan_number(scan, " window-flags=", 0, 3);
    if (!scan->expected && !bloom_params_valid(&filter->params, NULL))
        scan->expected = " window=";
}

static void parse_seed(struct manifest_parser *parser, struct scan *scan)
{
    struct bloom_params *params = &parser->filter.params;

    if (bloom_params_have_seed(params)) {
        params->tightening = scan_real(scan, " tightening=", 1, &parser->rate);
        scan_text(scan, " seed=");
        for (unsigned i = 0; i < BLOOM_SEED_BYTES; i += 8) {
            uint64_t eight = __builtin_bswap64(scan_hex(scan, ""));
            memcpy(params->seed.bytes + i, &eight, sizeof(eight));
        }
    }
    if (!scan->expected && params->expansion > BLOOM_MAX_EXPANSION && !bloom_params_have_seed(params))
        scan->expected = " expansion=";
}

static int parse_filter(struct manifest_parser *parser, struct scan *scan, struct errbuf *err)
{
    struct manifest_filter *filter = &parser->filter;

    filter->id = scan_number(scan, "filter id=", 1, MANIFEST_MAX_NUMBER);
    filter->params = (struct bloom_params){0}; /* no field is inherited from the record before */
    if (parse_name(parser, scan) != 0)
        return -ENOMEM;
    parse_pack(parser, scan);
    filter->params.capacity = scan_number(scan, " capacity=", 1, UINT64_MAX);
    filter->params.error_rate = scan_real(scan, " error-rate=", 1, &parser->rate);
    filter->params.expansion = (uint32_t)scan_number(scan, " expansion=", 0, UINT32_MAX);
    filter->variant = scan_variant(scan, " variant=");
    if (bloom_layout_of(filter->variant)->own_numbers)
        filter->params.redisbloom = (uint8_t)scan_number(scan, " options=", 0, MANIFEST_MAX_OPTIONS);
    parse_window(filter, scan);
    if (bloom_params_is_cuckoo(&filter->params))
        filter->params.iterations = (uint16_t)scan_number(scan, " iterations=", 1, UINT16_MAX);
    if (comes_next(scan, " key="))
        filter->params.key = scan_hex(scan, " key=");
    parse_seed(parser, scan);
    filter->expires_ms = (int64_t)scan_number(scan, " expires-ms=", 0, INT64_MAX);
    filter->nlayers = (unsigned)scan_number(scan, " layers=", 1, BLOOM_MAX_LAYERS);
    parser->layers_read = 0;
    filter->text_offset = parser->offset;
    parser->state = AT_LAYER;
    return scan_end(scan, "a filter", err);
}

/* `line_len`: of the line, with its end. */
static int finish_filter(struct manifest_parser *parser, size_t line_len, struct errbuf *err)
{
    struct manifest_filter *filter = &parser->filter;
    uint64_t newest = manifest_filter_newest(filter);

    if (filter->pack && manifest_filter_bytes(filter) > MANIFEST_MAX_PACKED)
        return errbuf_fail(err, MANIFEST_DAMAGED, "more than %d bytes of layers in a pack", MANIFEST_MAX_PACKED);
    filter->text_len = (size_t)(parser->offset - filter->text_offset) + line_len;
    parser->highest = newest > parser->highest ? newest : parser->highest;
    parser->state = AT_ENTRY;
    parser->nfilters++;
    return parser->sink->on_filter(parser->sink->ctx, filter, err);
}

static int parse_layer(struct manifest_parser *parser, struct scan *scan, struct errbuf *err)
{
    struct manifest_layer *layer = &parser->filter.layers[parser->layers_read];

    bool redisbloom = bloom_layout_of(parser->filter.variant)->own_numbers;

    *layer = (struct manifest_layer){.shape.variant = (uint8_t)parser->filter.variant};
    layer->shape.k = (uint8_t)scan_number(scan, "layer k=", 1, redisbloom ? BLOOM_MAX_HASHES : BLOOM_MAX_K);
    layer->shape.nwords = scan_number(scan, " words=", 1, BLOOM_MAX_WORDS);
    layer->items = scan_number(scan, " items=", 0, UINT64_MAX);
    layer->xxh3 = scan_hex(scan, " xxh3=");
    layer->file = parser->filter.pack ? 0 : scan_number(scan, " file=", 1, MANIFEST_MAX_NUMBER);
    if (redisbloom) {
        layer->shape.n2 = (uint8_t)scan_number(scan, " n2=", 0, 63);
        layer->shape.spare_bytes = (uint8_t)scan_number(scan, " spare=", 0, 7);
        layer->shape.capacity = scan_number(scan, " capacity=", 1, REDISBLOOM_MAX_ENTRIES);
        layer->shape.error_rate = scan_real(scan, " error-rate=", 1, &parser->rate);
        layer->shape.bpe = scan_real(scan, " bpe=", HUGE_VAL, &parser->bpe);
    }
    if (bloom_params_have_turns(&parser->filter.params)) {
        layer->shape.level = (uint16_t)scan_number(scan, " level=", 0, BLOOM_MAX_LAYERS - 1);
        layer->turn.number = scan_number(scan, " turn=", 0, MANIFEST_MAX_TURN);
        layer->turn.base =
            scan_number(scan, " base=", 0, layer->items < MANIFEST_MAX_TURN ? layer->items : MANIFEST_MAX_TURN);
        layer->turn.started_us = (int64_t)scan_number(scan, " started-us=", 0, MANIFEST_MAX_TURN);
    }
    TRY(scan_end(scan, "a layer", err));
    if (++parser->layers_read < parser->filter.nlayers)
        return MANIFEST_OK;
    return finish_filter(parser, (size_t)(scan->end - scan->begin) + 1, err);
}

static int parse_gone(struct manifest_parser *parser, struct scan *scan, struct errbuf *err)
{
    uint64_t id = scan_number(scan, "gone id=", 1, MANIFEST_MAX_NUMBER);

    if (!parser->sink->on_gone || parser->nfilters == 0)
        scan->expected = "filter id=";
    TRY(scan_end(scan, "a filter that is gone", err));
    CHECK(parser->sink->on_gone);
    parser->nfilters--;
    return parser->sink->on_gone(parser->sink->ctx, id, err);
}

static int parse_database(struct manifest_parser *parser, struct scan *scan, struct errbuf *err)
{
    unsigned number = (unsigned)scan_number(scan, "database number=", parser->databases_read, DATABASES_MAX - 1);
    unsigned database = (unsigned)scan_number(scan, " is=", 0, DATABASES_MAX - 1);

    TRY(scan_end(scan, "a database", err));
    if (database == number)
        return errbuf_fail(err, MANIFEST_DAMAGED, "database %u needs no line: it stands for itself", number);
    parser->databases_read = number + 1;
    databases_set(&parser->save.databases, number, database);
    return MANIFEST_OK;
}

static int parse_save(struct manifest_parser *parser, struct scan *scan, struct errbuf *err)
{
    parser->save.number = scan_number(scan, "save number=", parser->highest, MANIFEST_MAX_NUMBER);
    parser->save.next_id = scan_number(scan, " next-id=", 1, MANIFEST_MAX_NUMBER);
    parser->save.log = scan_number(scan, " log=", 0, MANIFEST_MAX_NUMBER);
    parser->save.control = scan_number(scan, " control=", 0, MANIFEST_MAX_NUMBER);
    parser->save.frame = scan_number(scan, " frame=", 0, MANIFEST_MAX_NUMBER);
    parser->save.accepted = scan_number(scan, " accepted=", 0, MANIFEST_MAX_NUMBER);
    parser->state = AT_LAST;
    TRY(scan_end(scan, "the line about the save", err));
    if (databases_are_valid(&parser->save.databases))
        return MANIFEST_OK;
    return errbuf_fail(err, MANIFEST_DAMAGED, "two database numbers stand for the same database");
}

static int parse_magic(struct manifest_parser *parser, const char *line, size_t len, struct errbuf *err)
{
    const size_t stem = sizeof("bloomery-manifest ") - 1;

    parser->state = AT_ENTRY;
    if (len == strlen(MANIFEST_MAGIC) && memcmp(line, MANIFEST_MAGIC, len) == 0)
        return MANIFEST_OK;
    if (len > stem && memcmp(line, MANIFEST_MAGIC, stem) == 0)
        return errbuf_fail(err, MANIFEST_NEWER,
                           WRITTEN_BY_NEWER ": format version '%.*s' is unknown; this program knows version 1",
                           (int)(len - stem < 20 ? len - stem : 20), line + stem);
    return errbuf_fail(err, MANIFEST_DAMAGED, "not a MANIFEST: it does not begin with '%s'", MANIFEST_MAGIC);
}

static int parse_end(struct manifest_parser *parser, const char *line, size_t len, struct errbuf *err)
{
    struct buf right;
    int rc = MANIFEST_OK;

    parser->end_offset = parser->offset;
    parser->digest = XXH3_64bits_digest(parser->hash);
    buf_init(&right, SIZE_MAX);
    manifest_format_end(&right, parser->nfilters, parser->digest);
    if (buf_failed(&right)) {
        rc = -ENOMEM;
    } else if (len + 1 != buf_len(&right) || memcmp(line, right.data, len) != 0) {
        errbuf_set(err, "checksum or counts differ from the lines before: '%.*s', but it should be '%.*s'",
                   (int)(len < 100 ? len : 100), line, (int)(buf_len(&right) - 1), right.data);
        rc = MANIFEST_DAMAGED;
    }
    parser->state = AT_END;
    buf_deinit(&right);
    return rc;
}

static bool begins_with(const char *line, size_t len, const char *word)
{
    return len >= strlen(word) && memcmp(line, word, strlen(word)) == 0;
}

static int parse_line(struct manifest_parser *parser, const char *line, size_t len, struct errbuf *err)
{
    struct scan scan = {.begin = line, .p = line, .end = line + len};

    switch (parser->state) {
    case AT_MAGIC:
        return parse_magic(parser, line, len, err);
    case AT_LAYER:
        return parse_layer(parser, &scan, err);
    case AT_LAST:
        return parse_end(parser, line, len, err);
    case AT_END:
        return errbuf_fail(err, MANIFEST_DAMAGED, "something follows the last line");
    default:
        break;
    }
    if (parser->hash && begins_with(line, len, "database "))
        return parse_database(parser, &scan, err);
    if (!parser->databases_read && begins_with(line, len, "filter "))
        return parse_filter(parser, &scan, err);
    if (!parser->databases_read && begins_with(line, len, "gone "))
        return parse_gone(parser, &scan, err);
    if (parser->hash && begins_with(line, len, "save ")) /* there is none in a text of filters alone */
        return parse_save(parser, &scan, err);
    return errbuf_fail(err, MANIFEST_DAMAGED, "'%.*s' cannot begin a line here", (int)(len < 40 ? len : 40), line);
}

/* ---- feeding ---- */

void manifest_parser_init_at(struct manifest_parser *parser, const struct manifest_sink *sink, uint64_t offset)
{
    memset(parser, 0, sizeof(*parser));
    buf_init(&parser->line, MANIFEST_MAX_LINE);
    parser->sink = sink;
    manifest_parser_restart(parser, offset);
}

void manifest_parser_restart(struct manifest_parser *parser, uint64_t offset)
{
    parser->state = AT_ENTRY;
    parser->offset = offset;
    parser->line_number = 1;
    buf_truncate(&parser->line, 0);
}

int manifest_parser_init(struct manifest_parser *parser, const struct manifest_sink *sink)
{
    manifest_parser_init_at(parser, sink, 0);
    parser->state = AT_MAGIC;
    parser->hash = XXH3_createState();
    if (!parser->hash)
        return -ENOMEM;
    XXH3_64bits_reset(parser->hash);
    return 0;
}

void manifest_parser_deinit(struct manifest_parser *parser)
{
    buf_deinit(&parser->line);
    free(parser->name);
    XXH3_freeState(parser->hash);
    parser->name = NULL;
    parser->hash = NULL;
}

static int take_line(struct manifest_parser *parser, const char *line, size_t len, struct errbuf *err)
{
    int rc = parse_line(parser, line, len, err);

    if (rc == MANIFEST_DAMAGED || rc == MANIFEST_NEWER)
        errbuf_prefix(err, "line %" PRIu64, parser->line_number);
    if (rc != 0)
        return rc;
    if (parser->hash) {
        XXH3_64bits_update(parser->hash, line, len);
        XXH3_64bits_update(parser->hash, "\n", 1);
    }
    parser->line_number++;
    parser->offset += len + 1;
    return 0;
}

static int keep_rest(struct manifest_parser *parser, const char *bytes, size_t len, struct errbuf *err)
{
    if (buf_len(&parser->line) + len > MANIFEST_MAX_LINE)
        return errbuf_fail(err, MANIFEST_DAMAGED, "line %" PRIu64 ": too long", parser->line_number);
    buf_append(&parser->line, bytes, len);
    return buf_failed(&parser->line) ? -ENOMEM : 0;
}

int manifest_parser_feed(struct manifest_parser *parser, const char *bytes, size_t len, struct errbuf *err)
{
    while (len > 0) {
        const char *newline = memchr(bytes, '\n', len);
        size_t part = newline ? (size_t)(newline - bytes) : len;
        int rc;

        if (!newline || buf_len(&parser->line) > 0) {
            rc = keep_rest(parser, bytes, part, err);
            if (rc == 0 && newline)
                rc = take_line(parser, parser->line.data, buf_len(&parser->line), err);
            if (newline)
                buf_truncate(&parser->line, 0);
        } else {
            rc = take_line(parser, bytes, part, err);
        }
        if (rc != 0)
            return rc;
        bytes += newline ? part + 1 : part;
        len -= newline ? part + 1 : part;
    }
    return 0;
}

int manifest_parser_finish(struct manifest_parser *parser, struct errbuf *err)
{
    if (parser->state == AT_END && buf_len(&parser->line) == 0)
        return MANIFEST_OK;
    if (parser->state == AT_END)
        errbuf_set(err, "line %" PRIu64 ": something follows the last line", parser->line_number);
    else if (parser->offset == 0 && buf_len(&parser->line) == 0)
        errbuf_set(err, "line 1: the file is empty; if the directory is a copy of one in use, copy again");
    else
        errbuf_set(err, "line %" PRIu64 ": the file ends here, before its last line", parser->line_number);
    return MANIFEST_DAMAGED;
}
