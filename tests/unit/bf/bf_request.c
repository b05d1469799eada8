/* Requests of BF.* as tables: the words, and the parsed request or the error. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdio.h>
#include <string.h>

#include "bf_request.h"
#include "bloom_scaling.h"

#define MAX_WORDS 16
#define NOW_MS    INT64_C(1000000)

struct words {
    struct slice word[MAX_WORDS];
    size_t n;
};

static struct slice word_at(const void *ctx, size_t i)
{
    const struct words *words = ctx;
    cr_assert_lt(i, words->n, "argument %zu of %zu was looked at", i, words->n);
    return words->word[i];
}

/* Splits at single spaces; the text must outlive the result. */
static struct bf_args split(const char *text, struct words *words, const char *name)
{
    words->n = 0;
    while (*text) {
        size_t len = strcspn(text, " ");
        words->word[words->n++] = (struct slice){text, len};
        text += len + (text[len] == ' ');
    }
    return (struct bf_args){words->n, word_at, words, name};
}

static const struct bf_defaults defaults = {{100, 0.01, 2}, NOW_MS};

struct reserve_case {
    char text[96], error[160]; /* error "": the values below */
    double rate;
    uint64_t capacity;
    uint32_t expansion;
    int64_t expires_ms;
};

struct find_case {
    char text[96], error[160]; /* error "": the values below */
    bool count, keys;
    size_t first_name, names, first_item, items;
};

ParameterizedTestParameters(bf_request, find)
{
#define FIND_SYNTAX "ERR syntax error: BF.FIND takes [COUNT], names or patterns, then ITEMS item ... or KEY key ..."
#define FIND_ARITY  "ERR wrong number of arguments for 'bf.find' command"
    static struct find_case cases[] = {
        {"bf.find f ITEMS x", "", false, false, 1, 1, 3, 1},
        {"bf.find f g* items x y z", "", false, false, 1, 2, 4, 3},
        {"bf.find count f ITEMS x", "", true, false, 2, 1, 4, 1},
        {"bf.find f COUNT ITEMS x", "", false, false, 1, 2, 4, 1},
        {"bf.find f ITEMS ITEMS", "", false, false, 1, 1, 3, 1},
        {"bf.find f ITEMS", FIND_ARITY, false, false, 0, 0, 0, 0},
        {"bf.find ITEMS x y", FIND_ARITY, false, false, 0, 0, 0, 0},
        {"bf.find COUNT ITEMS x", FIND_ARITY, false, false, 0, 0, 0, 0},
        {"bf.find f g x", FIND_SYNTAX, false, false, 0, 0, 0, 0},
    };
    return cr_make_param_array(struct find_case, cases, sizeof(cases) / sizeof(cases[0]));
}

ParameterizedTest(struct find_case *c, bf_request, find)
{
    struct words words;
    struct bf_args args = split(c->text, &words, "bf.find");
    struct errbuf error = {""};
    struct bf_find find;
    cr_assert_eq(bf_read_find(&args, &find, &error), c->error[0] == '\0', "%s", c->text);
    if (c->error[0]) {
        cr_assert_str_eq(error.text, c->error, "%s", c->text);
        return;
    }
    cr_assert(find.count == c->count && find.keys == c->keys, "%s", c->text);
    cr_assert(find.first_name == c->first_name && find.names == c->names, "%s", c->text);
    cr_assert(find.first_item == c->first_item && find.items == c->items, "%s", c->text);
}

ParameterizedTestParameters(bf_request, reserve)
{
    static struct reserve_case cases[] = {
        {"bf.reserve f 0.01 100", "", 0.01, 100, 2, 0},
        {"bf.reserve f 1e-9 7 EXPANSION 4", "", 1e-9, 7, 4, 0},
        {"bf.reserve f 0.01 100 nonscaling", "", 0.01, 100, 0, 0},
        {"bf.reserve f 0.01 100 EXPANSION 0 NONSCALING", "", 0.01, 100, 0, 0},
        {"bf.reserve f 0.01 100 TTL 5", "", 0.01, 100, 2, NOW_MS + 5000},
        {"bf.reserve f 0.01 100 TTL 5 EXPANSION 3", "", 0.01, 100, 3, NOW_MS + 5000},
        {"bf.reserve f 0.01", "ERR wrong number of arguments for 'bf.reserve' command", 0, 0, 0, 0},
        {"bf.reserve f x 100", "ERR bad error rate", 0, 0, 0, 0},
        {"bf.reserve f 1 100", "ERR error rate must be in the range (0.000000, 1.000000)", 0, 0, 0, 0},
        {"bf.reserve f 0 100", "ERR error rate must be in the range (0.000000, 1.000000)", 0, 0, 0, 0},
        {"bf.reserve f nan 100", "ERR bad error rate", 0, 0, 0, 0},
        {"bf.reserve f 0.01 1.5", "ERR bad capacity", 0, 0, 0, 0},
        {"bf.reserve f 0.01 0 EXPANSION", "ERR no expansion", 0, 0, 0, 0}, /* options come before the range */
        {"bf.reserve f 0.01 1 EXPANSION x", "ERR bad expansion", 0, 0, 0, 0},
        {"bf.reserve f 0.01 1 EXPANSION 32769", "ERR expansion must be in the range [0, 32768]", 0, 0, 0, 0},
        {"bf.reserve f 0.01 1 EXPANSION 2 NONSCALING", "Nonscaling filters cannot expand", 0, 0, 0, 0},
        {"bf.reserve f 0.01 1 TTL", "ERR TTL without seconds", 0, 0, 0, 0},
        {"bf.reserve f 0.01 1 TTL 0", "ERR invalid expire time in 'bf.reserve' command", 0, 0, 0, 0},
        {"bf.reserve f 0.01 1 TTL 9223372036854775", "ERR invalid expire time in 'bf.reserve' command", 0, 0, 0, 0},
        {"bf.reserve f 0.01 1 TTL x", "ERR value is not an integer or out of range", 0, 0, 0, 0},
        {"bf.reserve f 0.01 1 HUGE",
         "ERR unknown option 'HUGE': BF.RESERVE takes EXPANSION n, NONSCALING, LAYOUT name, TTL "
         "seconds, WINDOW seconds or ITEMS n, PARTS n, REFRESH and KEYED",
         0, 0, 0, 0},
        /* A rate that no filter has has no range to name. */
        {"bf.reserve f 1e-300 0", "ERR capacity must be at least 1", 0, 0, 0, 0},
        {"bf.reserve f 1e-300 0 NONSCALING", "ERR capacity must be at least 1", 0, 0, 0, 0},
        {"bf.reserve f 1e-300 -1 LAYOUT redisbloom", "ERR capacity must be at least 1", 0, 0, 0, 0},
        {"bf.reserve f 1e-300 0 WINDOW 10", "ERR capacity must be at least 1", 0, 0, 0, 0},
        {"bf.reserve f 0.01 1 a b c d", "ERR wrong number of arguments for 'bf.reserve' command", 0, 0, 0, 0},
    };
    return cr_make_param_array(struct reserve_case, cases, sizeof(cases) / sizeof(cases[0]));
}

/* BF.RESERVE takes its options in any order, and each mistake has the error text that clients know. */
ParameterizedTest(const struct reserve_case *c, bf_request, reserve)
{
    struct words words;
    struct bf_args args = split(c->text, &words, "bf.reserve");
    struct bf_reserve reserve;
    struct errbuf error = {""};
    bool ok = bf_read_reserve(&args, &defaults, &reserve, &error);
    cr_assert_eq(ok, c->error[0] == '\0', "%s: %s", c->text, error.text);
    if (!ok) {
        cr_assert_str_eq(error.text, c->error, "%s: %s", c->text, error.text);
        return;
    }
    cr_assert_eq(reserve.params.error_rate, c->rate);
    cr_assert_eq(reserve.params.capacity, c->capacity);
    cr_assert_eq(reserve.params.expansion, c->expansion);
    cr_assert_eq(reserve.expires_ms, c->expires_ms);
}

/* A capacity of BF.RESERVE below 1 is refused with the largest one for this rate. */
Test(bf_request, capacity_of_zero_names_the_range)
{
    struct words words;
    struct bf_args args = split("bf.reserve f 0.01 0", &words, "bf.reserve");
    struct bf_reserve reserve;
    struct errbuf error = {""};
    cr_assert_not(bf_read_reserve(&args, &defaults, &reserve, &error));
    unsigned long long most = 0;
    cr_assert_eq(sscanf(error.text, "ERR capacity must be in the range [1, %llu]", &most), 1, "%s", error.text);
    cr_assert_eq(most, bloom_first_most(&(struct bloom_params){1, 0.01, 2}));
}

struct insert_case {
    char text[120], error[96];
    struct bloom_params params;
    size_t first_item;
    bool no_create, sized;
    char owner[80]; /* no text: none */
};

ParameterizedTestParameters(bf_request, insert)
{
    static struct insert_case cases[] = {
        {"bf.insert f ITEMS a", "", {100, 0.01, 2}, 3, false, false},
        {"bf.insert f CAPACITY 7 ERROR 0.5 EXPANSION 9 NOCREATE ITEMS a b", "", {7, 0.5, 9}, 10, true, true},
        {"bf.insert f NONSCALING ITEMS ITEMS", "", {100, 0.01, 0}, 4, false, false},
        {"bf.insert f ITEMS", "ERR wrong number of arguments for 'bf.insert' command", {0, 0, 0}, 0, false, false},
        {"bf.insert f a", "Unknown argument received", {0, 0, 0}, 0, false, false},
        {"bf.insert f CAPACITY 0 ITEMS a", "Bad capacity", {0, 0, 0}, 0, false, false},
        {"bf.insert f ERROR 1 ITEMS a", "Bad error rate", {0, 0, 0}, 0, false, false},
        {"bf.insert f EXPANSION -1 ITEMS a", "Bad expansion", {0, 0, 0}, 0, false, false},
        {"bf.insert f CAPACITY 9223372036854775807 ITEMS a", "Bad capacity", {0, 0, 0}, 0, false, false},
        {"bf.insert f OWNER w ITEMS a", "", {100, 0.01, 2}, 5, false, false, "w"},
        {"bf.insert f NOCREATE OWNER ITEMS ITEMS ITEMS", "", {100, 0.01, 2}, 6, true, false, "ITEMS"},
        {"bf.insert f OWNER OWNER NONSCALING ITEMS a", "", {100, 0.01, 0}, 6, false, false, "OWNER"},
        {"bf.insert f OWNER WINDOW ITEMS OWNER w", "", {100, 0.01, 2}, 5, false, false, "WINDOW"},
        {"bf.insert f OWNER", "ERR OWNER takes an id of 1 to 64 bytes", {0, 0, 0}, 0, false, false},
        {"bf.insert f OWNER ITEMS a", "Unknown argument received", {0, 0, 0}, 0, false, false},
        {"bf.insert f OWNER 0123456789012345678901234567890123456789012345678901234567890123 ITEMS a",
         "",
         {100, 0.01, 2},
         5,
         false,
         false,
         "0123456789012345678901234567890123456789012345678901234567890123"},
        {"bf.insert f OWNER 01234567890123456789012345678901234567890123456789012345678901234 ITEMS a",
         "ERR OWNER takes an id of 1 to 64 bytes",
         {0, 0, 0},
         0,
         false,
         false},
    };
    return cr_make_param_array(struct insert_case, cases, sizeof(cases) / sizeof(cases[0]));
}

/* BF.INSERT's options end at the first ITEMS; later slices find the same place again. */
ParameterizedTest(const struct insert_case *c, bf_request, insert)
{
    struct words words;
    struct bf_args args = split(c->text, &words, "bf.insert");
    struct bf_insert insert;
    struct errbuf error = {""};
    bool ok = bf_read_insert(&args, &defaults, &insert, &error);
    cr_assert_eq(ok, c->error[0] == '\0', "%s: %s", c->text, error.text);
    if (!ok) {
        cr_assert_str_eq(error.text, c->error, "%s: %s", c->text, error.text);
        return;
    }
    cr_assert_eq(insert.params.error_rate, c->params.error_rate);
    cr_assert_eq(insert.params.capacity, c->params.capacity);
    cr_assert_eq(insert.params.expansion, c->params.expansion);
    cr_assert_eq(insert.first_item, c->first_item);
    struct slice owner;
    cr_assert_eq(bf_first_item(&args, &owner), c->first_item);
    cr_assert_eq(owner.len, strlen(c->owner));
    cr_assert(memcmp(owner.ptr ? owner.ptr : "", c->owner, owner.len) == 0);
    cr_assert_eq(insert.no_create, c->no_create);
    cr_assert_eq(insert.sized, c->sized);
}

/* BF.QUERY reports a missing filter by default; an item may be called ITEMS. */
Test(bf_request, query_answers_for_missing_filters)
{
    struct words words;
    struct bf_query query;
    struct errbuf error = {""};
    struct bf_args args = split("bf.query f ITEMS ITEMS", &words, "bf.query");
    cr_assert(bf_read_query(&args, &query, &error));
    cr_assert_eq(query.missing, BF_MISSING_ERROR);
    cr_assert_eq(query.first_item, 3);
    args = split("bf.query f missing null ITEMS a", &words, "bf.query");
    cr_assert(bf_read_query(&args, &query, &error));
    cr_assert_eq(query.missing, BF_MISSING_NULL);
    args = split("bf.query f MISSING maybe ITEMS a", &words, "bf.query");
    cr_assert_not(bf_read_query(&args, &query, &error));
    cr_assert_str_eq(error.text, "ERR MISSING takes ERROR, NULL or ABSENT");
    args = split("bf.query f MISSING NULL", &words, "bf.query");
    cr_assert_not(bf_read_query(&args, &query, &error));
    cr_assert_str_eq(error.text, "ERR wrong number of arguments for 'bf.query' command");
}
