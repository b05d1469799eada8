/* Compares recorded replies with received ones: equal, or different in a way that the table allows. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "corpus_internal.h"

const char *corpus_behind(const char *text, const char *prefix)
{
    size_t len = strlen(prefix);

    return strncmp(text, prefix, len) == 0 ? text + len : NULL;
}

bool corpus_same(const struct lines *recorded, const struct lines *got)
{
    bool soft =
        recorded->count > 0 && (corpus_behind(recorded->items[0], "<~ ") || corpus_behind(recorded->items[0], "<^ "));

    if (soft) /* the kind: "<~ *" */
        return got->count > 0 && strncmp(recorded->items[0], got->items[0], 4) == 0;
    if (recorded->count != got->count)
        return false;
    for (size_t i = 0; i < got->count; i++)
        if (strcmp(recorded->items[i], got->items[i]) != 0)
            return false;
    return true;
}

bool corpus_is_later(const char *command, const struct lines *recorded, const struct lines *got)
{
    if (!corpus_behind(command, "TTL ") || recorded->count != 1 || got->count != 1)
        return false;
    const char *then = corpus_behind(recorded->items[0], "< :"), *now = corpus_behind(got->items[0], "< :");
    long passed = then && now ? atol(then) - atol(now) : -1;

    return passed >= 0 && passed < 60 && atol(now) > 0;
}

static bool differ_in_one_number(const struct lines *recorded, const struct lines *got)
{
    size_t different = 0;

    if (recorded->count != got->count)
        return false;
    for (size_t i = 0; i < got->count; i++) {
        if (strcmp(recorded->items[i], got->items[i]) == 0)
            continue;
        if (strncmp(recorded->items[i], "< :", 3) != 0 || strncmp(got->items[i], "< :", 3) != 0)
            return false;
        different++;
    }
    return different == 1;
}

/* The structure of a reply with dumps, without their contents and their number of chunks: ":n" for an iterator, ":0"
 * for the end, "$n" for a chunk, other lines unchanged; equal steps of a copy count once. The caller frees it. */
static char *dump_shape(const struct lines *lines)
{
    static const char step[] = " < *2 :n $n < +OK";
    size_t size = 1, len = 0, step_len = sizeof(step) - 1;
    char *shape;

    for (size_t i = 0; i < lines->count; i++)
        size += strlen(lines->items[i]) + 1;
    shape = calloc(1, size);
    cr_assert_not_null(shape);
    for (size_t i = 0; i < lines->count; i++) {
        const char *line = lines->items[i], *rest;

        if ((rest = corpus_behind(line, "< :")) != NULL) {
            len += (size_t)sprintf(shape + len, strcmp(rest, "0") == 0 ? " :0" : " :n");
        } else if ((rest = corpus_behind(line, "< $")) != NULL && i + 1 < lines->count) {
            len += (size_t)sprintf(shape + len, strcmp(rest, "0") == 0 ? " $0" : " $n");
            i++;
        } else {
            len += (size_t)sprintf(shape + len, " %s", line);
        }
        if (len >= 2 * step_len && memcmp(shape + len - step_len, step, step_len) == 0 &&
            memcmp(shape + len - 2 * step_len, step, step_len) == 0)
            shape[len -= step_len] = '\0';
    }
    return shape;
}

bool corpus_same_but_dumps(const struct lines *recorded, const struct lines *got)
{
    char *recorded_shape = dump_shape(recorded), *got_shape = dump_shape(got);
    bool same = strcmp(recorded_shape, got_shape) == 0;

    free(recorded_shape);
    free(got_shape);
    return same;
}

/* The same error, and after it ": " and an explanation, or one in parentheses. */
static bool differ_in_more_words(const struct lines *recorded, const struct lines *got)
{
    const char *more =
        recorded->count == 1 && got->count == 1 ? corpus_behind(got->items[0], recorded->items[0]) : NULL;

    return more != NULL && corpus_behind(recorded->items[0], "< -") != NULL &&
           (corpus_behind(more, ": ") != NULL || corpus_behind(more, "(") != NULL);
}

bool corpus_is_meant(const struct compat_row *row, const struct lines *recorded, const struct lines *got)
{
    if (row == NULL)
        return false;
    switch (row->kind) {
    case COMPAT_ONE_NUMBER:
        return differ_in_one_number(recorded, got);
    case COMPAT_DUMP:
        return corpus_same_but_dumps(recorded, got);
    case COMPAT_MORE_WORDS:
        return differ_in_more_words(recorded, got);
    case COMPAT_ANY:
        break;
    }
    return true;
}
