/* The written requests, and counts of replies that are cut anywhere. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "rng.h"
#include "traffic.h"

static void expect_request(const char *line, uint64_t nfilters, unsigned batch, const char *wanted)
{
    struct items_options o = {.count = 10, .min_size = 3, .max_size = 3, .hits = 1, .order = ITEMS_SEQUENTIAL};
    struct request_template t;
    struct items items;
    char out[1024];
    items_init(&items, &o, 0, 1);
    cr_assert_eq(request_template_init(&t, line, "f", nfilters, batch, 3), 0);
    cr_assert_leq(strlen(wanted), t.max_size);
    size_t n = request_write(&t, &items, out);
    cr_assert(n == strlen(wanted) && memcmp(out, wanted, n) == 0, "%.*s", (int)n, out);
    request_template_deinit(&t);
}

Test(bench_traffic, requests)
{
    expect_request("PING", 1, 1, "*1\r\n$4\r\nPING\r\n");
    expect_request("BF.ADD {filter} {item}", 1, 1, "*3\r\n$6\r\nBF.ADD\r\n$1\r\nf\r\n$3\r\n000\r\n");
    expect_request("  SET  {item}   {item} ", 1, 1, "*3\r\n$3\r\nSET\r\n$3\r\n000\r\n$3\r\n100\r\n");
    expect_request("BF.MADD x {items}", 1, 3,
                   "*5\r\n$7\r\nBF.MADD\r\n$1\r\nx\r\n$3\r\n000\r\n$3\r\n100\r\n$3\r\n200\r\n");
    expect_request("A {items} {item}x", 1, 1, "*3\r\n$1\r\nA\r\n$3\r\n000\r\n$7\r\n{item}x\r\n");
    struct request_template t;
    cr_assert_neq(request_template_init(&t, "   ", "f", 1, 1, 3), 0);
    request_template_deinit(&t);
}

Test(bench_traffic, names_of_several_filters)
{
    struct items_options o = {.count = 10, .min_size = 3, .max_size = 3, .hits = 1};
    struct request_template t;
    struct items items;
    char out[1024];
    bool seen[4] = {false};
    items_init(&items, &o, 0, 1);
    cr_assert_eq(request_template_init(&t, "X {filter}", "f", 4, 1, 3), 0);
    for (unsigned i = 0; i < 200; i++) {
        size_t n = request_write(&t, &items, out);
        cr_assert(n <= t.max_size && n == strlen("*2\r\n$1\r\nX\r\n$3\r\nf:0\r\n"));
        unsigned filter = (unsigned)(out[n - 3] - '0');
        cr_assert_lt(filter, 4);
        seen[filter] = true;
    }
    cr_assert(seen[0] && seen[1] && seen[2] && seen[3]);
    request_template_deinit(&t);
}

/* Each reply with its counts. */
static const struct {
    const char *bytes;
    unsigned replies, errors, ones, zeros;
} replies[] = {
    {":1\r\n", 1, 0, 1, 0},
    {":0\r\n", 1, 0, 0, 1},
    {":12345\r\n", 1, 0, 0, 0},
    {":-1\r\n", 1, 0, 0, 0},
    {"#t\r\n", 1, 0, 1, 0},
    {"#f\r\n", 1, 0, 0, 1},
    {"+OK\r\n", 1, 0, 0, 0},
    {"-ERR no such thing, and a text that is longer than sixty-three bytes, which is what is kept of a cut line\r\n", 1,
     1, 0, 0},
    {"$-1\r\n", 1, 0, 0, 0},
    {"$0\r\n\r\n", 1, 0, 0, 0},
    {"$12\r\n:1\r\n:0\r\n+O\r\n\r\n", 1, 0, 0, 0},
    {"*0\r\n", 1, 0, 0, 0},
    {"*-1\r\n", 1, 0, 0, 0},
    {"*3\r\n:1\r\n:0\r\n:1\r\n", 1, 0, 2, 1},
    {"*2\r\n*2\r\n:1\r\n$1\r\nx\r\n*1\r\n-ERR x\r\n", 1, 1, 1, 0},
    {"%2\r\n+a\r\n:1\r\n+b\r\n#f\r\n", 1, 0, 1, 1},
    {"~1\r\n_\r\n", 1, 0, 0, 0},
    {",1.5\r\n", 1, 0, 0, 0},
    {"=7\r\ntxt:abc\r\n", 1, 0, 0, 0},
    {"!5\r\nERR x\r\n", 1, 1, 0, 0},
    {">2\r\n+message\r\n:1\r\n", 0, 0, 0, 0},
    {"(12345678901234567890\r\n", 1, 0, 0, 0},
};
#define NREPLIES (sizeof(replies) / sizeof(replies[0]))

static void expect_counts(const struct reply_reader *r, unsigned n[4], const char *what)
{
    cr_assert(r->replies == n[0] && r->errors == n[1] && r->ones == n[2] && r->zeros == n[3],
              "%s: %llu replies, %llu errors, %llu ones, %llu zeros; %u %u %u %u are right", what,
              (unsigned long long)r->replies, (unsigned long long)r->errors, (unsigned long long)r->ones,
              (unsigned long long)r->zeros, n[0], n[1], n[2], n[3]);
}

Test(bench_traffic, replies_cut_at_every_place)
{
    for (size_t i = 0; i < NREPLIES; i++) {
        size_t len = strlen(replies[i].bytes);
        unsigned n[4] = {replies[i].replies, replies[i].errors, replies[i].ones, replies[i].zeros};
        for (size_t cut = 0; cut <= len; cut++) {
            struct reply_reader r;
            replies_init(&r);
            char *first = strndup(replies[i].bytes, cut), *second = strdup(replies[i].bytes + cut);
            cr_assert(replies_take(&r, first, cut) && replies_take(&r, second, len - cut));
            expect_counts(&r, n, replies[i].bytes);
            replies_deinit(&r);
            free(first);
            free(second);
        }
    }
}

Test(bench_traffic, streams_of_replies_cut_at_random)
{
    struct rng rng;
    rng_init(&rng, 11);
    for (unsigned round = 0; round < 300; round++) {
        char stream[8192];
        size_t len = 0;
        unsigned n[4] = {0};
        while (len < sizeof(stream) - 256) {
            size_t i = rng_next(&rng) % NREPLIES;
            if (rng_next(&rng) % 2)
                i = rng_next(&rng) % 2;
            memcpy(stream + len, replies[i].bytes, strlen(replies[i].bytes));
            len += strlen(replies[i].bytes);
            n[0] += replies[i].replies;
            n[1] += replies[i].errors;
            n[2] += replies[i].ones;
            n[3] += replies[i].zeros;
        }
        struct reply_reader r;
        replies_init(&r);
        for (size_t at = 0; at < len;) {
            size_t piece = 1 + rng_next(&rng) % (rng_next(&rng) % 2 ? 5 : 700);
            if (piece > len - at)
                piece = len - at;
            char *copy = malloc(piece); /* so that a read beyond the piece is detected */
            memcpy(copy, stream + at, piece);
            cr_assert(replies_take(&r, copy, piece));
            free(copy);
            at += piece;
        }
        expect_counts(&r, n, "stream");
        replies_deinit(&r);
    }
}

Test(bench_traffic, what_is_not_resp_is_refused)
{
    static const char *const texts[] = {"HTTP/1.1 200 OK\r\n",
                                        "\r\n",
                                        "hello\n",
                                        ":1\n",
                                        ":1\rx\n",
                                        ":\n\r\n",
                                        "$9999999999999999999\r\n",
                                        "%-1\r\n",
                                        "!-5\r\n",
                                        "|-1\r\n",
                                        "$\r\n",
                                        "$\r\r\n",
                                        "*\r\n",
                                        "$ 1\r\n",
                                        "$1x\r\n",
                                        "*-\r\n"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct reply_reader r, bytes;
        bool good = true;
        replies_init(&r);
        replies_init(&bytes);
        char *copy = malloc(strlen(texts[i])); /* so that a read beyond it is detected */
        memcpy(copy, texts[i], strlen(texts[i]));
        cr_assert_not(replies_take(&r, copy, strlen(texts[i])), "%s", texts[i]);
        free(copy);
        for (const char *c = texts[i]; *c; c++)
            good = good && replies_take(&bytes, c, 1);
        cr_assert_not(good, "%s, byte by byte", texts[i]);
        replies_deinit(&r);
        replies_deinit(&bytes);
    }
}
