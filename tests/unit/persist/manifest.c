#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "manifest.h"
#include "rng.h"

/* The result of a parse, written again. */
struct copy {
    struct buf text;
};

static int copy_filter(void *ctx, const struct manifest_filter *filter, struct errbuf *err)
{
    struct copy *copy = ctx;
    size_t before = copy->text.end;

    (void)err;
    cr_assert_eq(before, filter->text_offset, "the offset of a filter");
    manifest_format_filter(&copy->text, filter);
    cr_assert_eq(copy->text.end - before, filter->text_len, "the length of its lines");
    return 0;
}

static int copy_gone(void *ctx, uint64_t id, struct errbuf *err)
{
    (void)err;
    manifest_format_gone(&((struct copy *)ctx)->text, id);
    return 0;
}

static int ignore_filter(void *ctx, const struct manifest_filter *filter, struct errbuf *err)
{
    (void)ctx, (void)filter, (void)err;
    return 0;
}

static int ignore_gone(void *ctx, uint64_t id, struct errbuf *err)
{
    (void)ctx, (void)id, (void)err;
    return 0;
}

static const struct manifest_save last = {
    .number = 9, .next_id = MANIFEST_MAX_NUMBER, .log = 3, .control = MANIFEST_MAX_NUMBER, .frame = 77, .accepted = 2};

static void finish(struct buf *text, const struct manifest_save *save, uint64_t nfilters)
{
    if (save)
        manifest_format_save(text, save);
    manifest_format_end(text, nfilters, XXH3_64bits(text->data, text->end));
}

static const struct manifest_filter redisbloom = {.id = 19,
                                                  .name = "moved",
                                                  .name_len = 5,
                                                  .params = {100, 0.01, 2, 5, .key = UINT64_C(0x00123456789abcde)},
                                                  .variant = BLOOM_REDISBLOOM,
                                                  .nlayers = 1,
                                                  .layers = {{.shape.nwords = 19,
                                                              .shape.k = 57,
                                                              .file = 4,
                                                              .shape.n2 = 10,
                                                              .shape.spare_bytes = 3,
                                                              .shape.capacity = 99,
                                                              .shape.error_rate = 5e-17,
                                                              .shape.bpe = 81.5}}};

static const struct manifest_filter valkey = {.id = 20,
                                              .name = "seeded",
                                              .name_len = 6,
                                              .params = {100, 0.01, UINT32_MAX, BLOOM_OPTION_VALKEY, .tightening = 0.5,
                                                         .seed = {"0123456789abcdefghijklmnopqrst\xff"}},
                                              .variant = BLOOM_VALKEY,
                                              .nlayers = 1,
                                              .layers = {{.shape.nwords = 15,
                                                          .shape.k = 7,
                                                          .file = 5,
                                                          .shape.capacity = 100,
                                                          .shape.error_rate = 0.01,
                                                          .shape.bpe = 9.6}}};

static struct buf sample(void)
{
    static const char name[] = {0, '/', (char)0xff, 'a', '.'};
    struct buf text = {.cap = SIZE_MAX};
    struct manifest_filter filter = {
        .id = 17,
        .name = name,
        .name_len = sizeof(name),
        .params = {.capacity = 1000, .error_rate = 0.01, .expansion = 2},
        .variant = BLOOM_ME,
        .expires_ms = INT64_MAX,
        .nlayers = 2,
        .layers = {{.shape.nwords = 157, .items = 1000, .xxh3 = 0x0123456789abcdef, .file = 3, .shape.k = 7},
                   {.shape.nwords = 2147483647, .items = UINT64_MAX, .xxh3 = 0, .file = 9, .shape.k = 21}},
    };
    struct manifest_filter empty_name = {.id = MANIFEST_MAX_NUMBER,
                                         .name = "",
                                         .params = {.capacity = UINT64_MAX, .error_rate = 0x1.fffffffffffffp-1},
                                         .nlayers = 1,
                                         .layers = {{.shape.nwords = 1, .xxh3 = UINT64_MAX, .file = 1, .shape.k = 1}}};
    struct manifest_filter packed = {
        .id = 18,
        .name = "packed",
        .name_len = 6,
        .pack = 8,
        .pack_offset = 45,
        .params = {.capacity = 100, .error_rate = 0.01},
        .nlayers = 2,
        .layers = {{.shape.nwords = 15, .shape.k = 7}, {.shape.nwords = 8175, .shape.k = 8}}};

    manifest_format_magic(&text);
    manifest_format_filter(&text, &filter);
    manifest_format_filter(&text, &empty_name);
    manifest_format_gone(&text, 17);
    manifest_format_filter(&text, &packed);
    manifest_format_filter(&text, &redisbloom);
    manifest_format_filter(&text, &valkey);
    finish(&text, &last, 4);
    return text;
}

static int parse(const char *bytes, size_t len, size_t piece, const struct manifest_sink *sink, struct errbuf *err)
{
    struct manifest_parser parser;
    int rc = 0;

    cr_assert_eq(manifest_parser_init(&parser, sink), 0);
    for (size_t at = 0; at < len && rc == 0; at += piece)
        rc = manifest_parser_feed(&parser, bytes + at, len - at < piece ? len - at : piece, err);
    if (rc == 0)
        rc = manifest_parser_finish(&parser, err);
    manifest_parser_deinit(&parser);
    return rc;
}

static const struct manifest_sink ignore = {ignore_filter, ignore_gone, NULL};

/* The text is a contract with operators and with other versions. */
Test(manifest, the_text_is_as_documented)
{
    struct buf text = sample();
    static const char expected[] =
        "bloomery-manifest 1\n"
        "filter id=17 name=%00%2F%FFa. capacity=1000 error-rate=0.01 expansion=2 variant=me "
        "expires-ms=9223372036854775807 layers=2\n"
        "layer k=7 words=157 items=1000 xxh3=0123456789abcdef file=3\n"
        "layer k=21 words=2147483647 items=18446744073709551615 xxh3=0000000000000000 file=9\n"
        "filter id=4611686018427387904 name= capacity=18446744073709551615 error-rate=0.9999999999999999 expansion=0 "
        "variant=na expires-ms=0 layers=1\n"
        "layer k=1 words=1 items=0 xxh3=ffffffffffffffff file=1\n"
        "gone id=17\n"
        "filter id=18 name=packed pack=8 offset=45 capacity=100 error-rate=0.01 expansion=0 variant=na expires-ms=0 "
        "layers=2\n"
        "layer k=7 words=15 items=0 xxh3=0000000000000000\n"
        "layer k=8 words=8175 items=0 xxh3=0000000000000000\n"
        "filter id=19 name=moved capacity=100 error-rate=0.01 expansion=2 variant=redisbloom options=5 "
        "key=00123456789abcde expires-ms=0 "
        "layers=1\n"
        "layer k=57 words=19 items=0 xxh3=0000000000000000 file=4 n2=10 spare=3 capacity=99 error-rate=5e-17 bpe=81.5\n"
        "filter id=20 name=seeded capacity=100 error-rate=0.01 expansion=4294967295 variant=valkey options=32 "
        "tightening=0.5 seed=303132333435363738396162636465666768696a6b6c6d6e6f7071727374ff00 expires-ms=0 layers=1\n"
        "layer k=7 words=15 items=0 xxh3=0000000000000000 file=5 n2=0 spare=0 capacity=100 error-rate=0.01 bpe=9.6\n"
        "save number=9 next-id=4611686018427387904 log=3 control=4611686018427387904 frame=77 accepted=2\n"
        "end filters=4 xxh3=";

    cr_assert_eq(text.end, sizeof(expected) - 1 + 17);
    cr_assert_eq(memcmp(text.data, expected, sizeof(expected) - 1), 0, "%.*s", (int)text.end, text.data);
    buf_deinit(&text);
}

Test(manifest, what_is_read_and_written_again_is_the_same_bytes_in_pieces_of_any_size)
{
    struct buf text = sample();

    for (size_t piece = 1; piece <= text.end; piece++) {
        struct copy copy = {.text.cap = SIZE_MAX};
        struct manifest_sink sink = {copy_filter, copy_gone, &copy};
        struct errbuf err = {{0}};

        manifest_format_magic(&copy.text);
        cr_assert_eq(parse(text.data, text.end, piece, &sink, &err), MANIFEST_OK, "%s", err.text);
        finish(&copy.text, &last, 4);
        cr_assert(copy.text.end == text.end && memcmp(copy.text.data, text.data, text.end) == 0, "piece %zu", piece);
        buf_deinit(&copy.text);
    }
    buf_deinit(&text);
}

Test(manifest, every_truncation_is_refused_with_the_line)
{
    struct buf text = sample();

    for (size_t len = 0; len < text.end; len++) {
        struct errbuf err = {{0}};
        cr_assert_eq(parse(text.data, len, 50, &ignore, &err), MANIFEST_DAMAGED, "%zu bytes", len);
        cr_assert_eq(memcmp(err.text, "line ", 5), 0, "%zu bytes: %s", len, err.text);
    }
    buf_deinit(&text);
}

Test(manifest, every_flipped_bit_is_refused_with_the_line)
{
    struct buf text = sample();

    for (size_t bit = 0; bit < 8 * text.end; bit++) {
        struct errbuf err = {{0}};
        text.data[bit / 8] ^= (char)(1 << (bit % 8));
        cr_assert_gt(parse(text.data, text.end, text.end, &ignore, &err), 0, "bit %zu", bit);
        cr_assert_eq(memcmp(err.text, "line ", 5), 0, "bit %zu: %s", bit, err.text);
        text.data[bit / 8] ^= (char)(1 << (bit % 8));
    }
    cr_assert_eq(parse(text.data, text.end, text.end, &ignore, NULL), MANIFEST_OK);
    buf_deinit(&text);
}

Test(manifest, anything_behind_the_last_line_is_refused)
{
    struct buf text = sample();
    char *more = malloc(text.end + 10);

    memcpy(more, text.data, text.end);
    memcpy(more + text.end, "\nfilter i", 9);
    for (size_t extra = 1; extra < 9; extra++)
        cr_assert_eq(parse(more, text.end + extra, 7, &ignore, NULL), MANIFEST_DAMAGED);
    more[text.end] = 'x';
    cr_assert_eq(parse(more, text.end + 1, 7, &ignore, NULL), MANIFEST_DAMAGED);
    free(more);
    buf_deinit(&text);
}

/* Invalid lines with a correct checksum: a person or another program may write them. */
static const struct {
    const char *from;
    const char *to;
} wrong_lines[] = {
    {"id=17", "id=0"},
    {"id=17", "id=017"},
    {"id=17", "id=+17"},
    {"id=17", "id=18446744073709551616"},
    {"id=17", "id="},
    {"name=%00", "name=%0"},
    {"name=%00", "name=%61"},
    {"capacity=1000", "capacity=0"},
    {"error-rate=0.01", "error-rate=0"},
    {"error-rate=0.01", "error-rate=1"},
    {"error-rate=0.01", "error-rate=0.010"},
    {"error-rate=0.01", "error-rate=1e-2"},
    {"error-rate=0.01", "error-rate=nan"},
    {"error-rate=0.01", "error-rate=-0.01"},
    {"error-rate=0.01", "error-rate=0x1p-7"},
    {"error-rate=0.01", "error-rate="},
    {"expansion=2", "expansion=32769"},
    {"variant=me", "variant=mx"},
    {"variant=me", "variant=redisbloom"},
    {"variant=redisbloom", "variant=na"},
    {"variant=redisbloom", "variant=redisbloom64"},
    {" options=5", ""},
    {"options=5", "options=16"},
    {"n2=10", "n2=64"},
    {"spare=3", "spare=8"},
    {"capacity=99", "capacity=0"},
    {"capacity=99", "capacity=1099511627776"},
    {"error-rate=5e-17", "error-rate=1"},
    {"bpe=81.5", "bpe=0"},
    {"bpe=81.5", "bpe=inf"},
    {"bpe=81.5", "bpe=nan"},
    {"bpe=81.5", "bpe=-81.5"},
    {" bpe=81.5", ""},
    {"k=57", "k=256"},
    {"expires-ms=9223372036854775807", "expires-ms=9223372036854775808"},
    {"expires-ms=0", "expires-ms=-1"},
    {"layers=2\n", "layers=0\n"},
    {"layers=2\n", "layers=1\n"},
    {"layers=2\n", "layers=3\n"},
    {"layers=2\n", "layers=1025\n"},
    {"layers=2\n", "layers=2 \n"},
    {"k=7", "k=0"},
    {"k=7", "k=22"},
    {"words=157", "words=0"},
    {"words=2147483647", "words=2147483648"},
    {"xxh3=0123456789abcdef", "xxh3=0123456789ABCDEF"},
    {"xxh3=0123456789abcdef", "xxh3=123456789abcdef"},
    {"file=3", "file=10"}, /* above the number of the save */
    {"file=3", "file=0"},
    {"file=3", "file=03"},
    {" file=3", ""},
    {"next-id=4611686018427387904", "next-id=0"},
    {"next-id=4611686018427387904", "next-id=4611686018427387905"},
    {"number=9 next", "number=4611686018427387905 next"},
    {"number=9 next", "number=8 next"},
    {" log=3", ""},
    {" frame=77", ""},
    {" frame=77", " frame=077"},
    {" frame=77", " frame=4611686018427387905"},
    {" accepted=2", ""},
    {" accepted=2", " accepted=2 "},
    {" accepted=2", " accepted=4611686018427387905"},
    {"control=4611686018427387904", "control=4611686018427387905"},
    {"id=17", "id=4611686018427387905"},
    {"gone id=17", "gone id=0"},
    {"gone id=17", "gone id=017"},
    {"gone id=17", "gone  id=17"},
    {"gone id=17", "gone id=17 "},
    {"gone id=17", "gone"},
    {"layer k=7", "layer  k=7"},
    {"pack=8", "pack=0"},
    {"pack=8", "pack=10"}, /* above the number of the save */
    {"pack=8", "pack=08"},
    {"offset=45", "offset=045"},
    {"offset=45", "offset="},
    {"offset=45", "offset=4611686018427387905"},
    {" offset=45", ""},
    {"words=8175", "words=8176"}, /* more than a pack takes of a filter */
    {"xxh3=0000000000000000\nfilter id=19", "xxh3=0000000000000000 file=8\nfilter id=19"}, /* of a layer in a pack */
    {"save ", "Save "},
    {"\nlayer k=1 ", "\n\nlayer k=1 "},
    {"\nlayer k=1 ", "\r\nlayer k=1 "},
};

Test(manifest, values_out_of_range_and_other_spellings_are_refused)
{
    struct buf text = sample();
    size_t body = text.end;

    while (memcmp(text.data + body - 4, "end ", 4) != 0)
        body--;
    body -= 4;
    for (size_t i = 0; i < sizeof(wrong_lines) / sizeof(*wrong_lines); i++) {
        struct buf changed = {.cap = SIZE_MAX, .data = malloc(8192), .size = 8192};
        struct errbuf err = {{0}};
        char *at = memmem(text.data, body, wrong_lines[i].from, strlen(wrong_lines[i].from));
        cr_assert_not_null(at, "row %zu", i);
        size_t before = (size_t)(at - text.data), skip = strlen(wrong_lines[i].from);
        memcpy(changed.data, text.data, before);
        memcpy(changed.data + before, wrong_lines[i].to, strlen(wrong_lines[i].to));
        memcpy(changed.data + before + strlen(wrong_lines[i].to), at + skip, body - before - skip);
        changed.end = body - skip + strlen(wrong_lines[i].to);
        finish(&changed, NULL, 4);
        cr_assert_gt(parse(changed.data, changed.end, 64, &ignore, &err), 0, "%s", wrong_lines[i].to);
        cr_assert(!strstr(err.text, "checksum"), "%s: %s", wrong_lines[i].to, err.text);
        buf_deinit(&changed);
    }
    buf_deinit(&text);
}

Test(manifest, another_version_is_refused)
{
    for (int version = 0; version <= 5; version++) {
        struct buf text = {.cap = SIZE_MAX, .data = malloc(1024), .size = 1024};
        struct errbuf err = {{0}};
        text.end = (size_t)snprintf(text.data, text.size, "bloomery-manifest %d\n", version);
        finish(&text, &last, 0);
        cr_assert_eq(parse(text.data, text.end, 64, &ignore, &err), version == 1 ? MANIFEST_OK : MANIFEST_NEWER,
                     "version %d: %s", version, err.text);
        cr_assert(version == 1 || strstr(err.text, "is unknown; this program knows version 1"), "%s", err.text);
        buf_deinit(&text);
    }
}

/* No line may be missing or repeated, neither before the line about the save nor after it. */
Test(manifest, the_line_about_the_save_is_the_last_but_one)
{
    static const char *const bodies[] = {"",
                                         ("save number=9 next-id=2 log=0 control=0 frame=0 accepted=0\n"
                                          "save number=9 next-id=2 log=0 control=0 frame=0 accepted=0\n"),
                                         "save number=9 next-id=2 log=0 control=0 frame=0 accepted=0\ngone id=1\n",
                                         "gone id=1\n"};

    for (size_t i = 0; i < sizeof(bodies) / sizeof(*bodies); i++) {
        struct buf text = {.cap = SIZE_MAX, .data = malloc(1024), .size = 1024};
        struct errbuf err = {{0}};
        text.end = (size_t)snprintf(text.data, text.size, "%s\n%s", MANIFEST_MAGIC, bodies[i]);
        finish(&text, NULL, 0);
        cr_assert_gt(parse(text.data, text.end, 64, &ignore, &err), 0, "row %zu", i);
        buf_deinit(&text);
    }
}

static int keep_rate(void *ctx, const struct manifest_filter *filter, struct errbuf *err)
{
    (void)err;
    *(double *)ctx = filter->params.error_rate;
    return 0;
}

Test(manifest, every_error_rate_is_kept_to_the_last_bit)
{
    struct rng rng;

    rng_init(&rng, 7);
    for (int i = 0; i < 20000; i++) {
        double rate = ldexp((double)(rng_next(&rng) >> 11), -53 - (int)rng_below(&rng, i % 2 ? 4 : 960)), read = 0;
        struct buf text = {.cap = SIZE_MAX};
        struct manifest_filter filter = {.id = 1,
                                         .name = "x",
                                         .name_len = 1,
                                         .params = {1, rate, 0},
                                         .nlayers = 1,
                                         .layers = {{.shape.nwords = 1, .file = 1, .shape.k = 1}}};
        struct manifest_sink sink = {keep_rate, ignore_gone, &read};

        if (!(rate > 0))
            continue;
        manifest_format_magic(&text);
        manifest_format_filter(&text, &filter);
        finish(&text, &(struct manifest_save){.number = 1, .next_id = 2}, 1);
        cr_assert_eq(parse(text.data, text.end, text.end, &sink, NULL), MANIFEST_OK, "%a", rate);
        cr_assert(rate == read, "%a %a", rate, read);
        buf_deinit(&text);
    }
}

Test(manifest, a_line_without_an_end_is_refused_before_it_fills_memory)
{
    struct manifest_parser parser;
    char junk[4096];
    size_t fed = 0;
    int rc = 0;

    memset(junk, 'x', sizeof(junk));
    cr_assert_eq(manifest_parser_init(&parser, &ignore), 0);
    while (rc == 0) {
        rc = manifest_parser_feed(&parser, junk, sizeof(junk), NULL);
        fed += sizeof(junk);
    }
    cr_assert_eq(rc, MANIFEST_DAMAGED);
    cr_assert_leq(fed, MANIFEST_MAX_LINE + sizeof(junk));
    manifest_parser_deinit(&parser);
}
