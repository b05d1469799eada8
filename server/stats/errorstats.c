#include "errorstats.h"

#include <stdbool.h>
#include <string.h>

/* Replaces bytes that would break INFO's line "errorstat_CODE:count=n". */
static void copy_code(char *code_out, const char *text, size_t len)
{
    size_t n = 0;

    for (; n < len && n < ERRORSTATS_CODE - 1 && text[n] != ' ' && text[n] != '\r'; n++) {
        unsigned char c = (unsigned char)text[n];
        code_out[n] = c <= ' ' || c > '~' || c == ':' || c == '#' ? '_' : text[n];
    }
    code_out[n] = '\0';
}

/* The row of the code; the last row counts the codes without a row of their own. */
static struct errorstats_row *find_row(struct errorstats *errors, const char *code)
{
    size_t used = atomic_load_explicit(&errors->used, memory_order_acquire);

    for (size_t i = 0; i < used; i++) {
        if (strcmp(errors->rows[i].code, code) == 0)
            return &errors->rows[i];
    }
    if (used == ERRORSTATS_MAX)
        return &errors->rows[ERRORSTATS_MAX - 1];
    struct errorstats_row *row = &errors->rows[used];
    strcpy(row->code, used == ERRORSTATS_MAX - 1 ? ERRORSTATS_REST : code);
    atomic_store_explicit(&errors->used, used + 1, memory_order_release);
    return row;
}

static void add(struct errorstats *errors, const char *code, uint64_t n)
{
    struct errorstats_row *row = find_row(errors, code);
    uint64_t count = atomic_load_explicit(&row->count, memory_order_relaxed);
    atomic_store_explicit(&row->count, count + n, memory_order_relaxed);
}

void errorstats_count(struct errorstats *errors, const char *text, size_t len)
{
    char code[ERRORSTATS_CODE];

    copy_code(code, text, len);
    add(errors, code, 1);
}

static void add_all(struct errorstats *sum, const struct errorstats *from, bool subtract)
{
    size_t used = atomic_load_explicit(&from->used, memory_order_acquire);

    for (size_t i = 0; i < used; i++) {
        uint64_t count = atomic_load_explicit(&from->rows[i].count, memory_order_relaxed);
        add(sum, from->rows[i].code, subtract ? 0 - count : count);
    }
}

void errorstats_sum(struct errorstats *sum, const struct errorstats *from)
{
    add_all(sum, from, false);
}

void errorstats_subtract(struct errorstats *sum, const struct errorstats *base)
{
    add_all(sum, base, true);
}
