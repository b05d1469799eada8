#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "check.h"
#include "config_internal.h"
#include "notify_flags.h"

/* ---- classes of events (notify_flags.h) ---- */

static const struct {
    char letter;
    unsigned flags;
} letters[] = {
    {'A', NOTIFY_ALL},    {'g', NOTIFY_GENERIC}, {'$', NOTIFY_STRING},   {'l', NOTIFY_LIST},     {'s', NOTIFY_SET},
    {'h', NOTIFY_HASH},   {'z', NOTIFY_ZSET},    {'x', NOTIFY_EXPIRED},  {'e', NOTIFY_EVICTED},  {'t', NOTIFY_STREAM},
    {'d', NOTIFY_MODULE}, {'n', NOTIFY_NEW},     {'K', NOTIFY_KEYSPACE}, {'E', NOTIFY_KEYEVENT}, {'m', NOTIFY_KEY_MISS},
};

#define NLETTERS (sizeof(letters) / sizeof(letters[0]))

/* False when a letter is unknown. */
static bool notify_flags_parse(struct slice text, unsigned *flags_out)
{
    unsigned flags = 0;

    for (size_t i = 0; i < text.len; i++) {
        size_t j = 0;

        while (j < NLETTERS && letters[j].letter != text.ptr[i])
            j++;
        if (j == NLETTERS)
            return false;
        flags |= letters[j].flags;
    }
    *flags_out = flags;
    return true;
}

/* In Redis's order, for CONFIG GET. */
static void notify_flags_format(unsigned flags, char text_out[NOTIFY_FLAGS_TEXT])
{
    unsigned shown = 0;
    char *out = text_out;

    /* 'A' comes first and replaces the letters of its classes. */
    for (size_t j = 0; j < NLETTERS; j++) {
        if ((flags & letters[j].flags) == letters[j].flags && (letters[j].flags & ~shown) != 0) {
            *out++ = letters[j].letter;
            shown |= letters[j].flags;
        }
    }
    *out = '\0';
}

/* ---- numbers ---- */

/* As in Redis, decimal numbers have no leading zero (sizes in bytes may). The only negative number that a setting may
 * take is -1; others are out of range, not malformed. */
static enum config_fault parse_integer(const struct config_row *row, struct slice text, int64_t *value_out)
{
    unsigned base = row->flags & CONFIG_OCTAL ? 8 : 10;
    bool negative = text.len > 0 && text.ptr[0] == '-';
    uint64_t value;

    if (negative)
        text = (struct slice){text.ptr + 1, text.len - 1};
    if ((base == 10 && text.len > 1 && text.ptr[0] == '0') || !slice_to_digits(text, base, &value) ||
        value > (uint64_t)INT64_MAX + negative || (negative && value == 0))
        return FAULT_FORM;
    if (negative && value == 1 && row->flags & CONFIG_OR_MINUS_1) {
        *value_out = -1;
        return FAULT_NONE;
    }
    if (negative || value < row->min || value > row->max)
        return FAULT_RANGE;
    *value_out = (int64_t)value;
    return FAULT_NONE;
}

/* As in Redis, 0% is 0. */
static enum config_fault parse_share(struct slice digits, uint64_t *value_out)
{
    uint64_t percent;

    if (!slice_to_digits(digits, 10, &percent))
        return FAULT_FORM;
    if (percent > 100)
        return FAULT_SHARE;
    *value_out = percent == 0 ? 0 : CONFIG_SHARE | percent;
    return FAULT_NONE;
}

uint64_t config_share(uint64_t value, uint64_t whole)
{
    uint64_t percent = value & ~CONFIG_SHARE;

    return value & CONFIG_SHARE ? whole / 100 * percent + whole % 100 * percent / 100 : value;
}

static enum config_fault parse_bytes(const struct config_row *row, struct slice text, uint64_t *value_out)
{
    static const struct {
        const char *suffix;
        uint64_t factor;
    } units[] = {{"kb", 1024}, {"mb", 1024 * 1024}, {"gb", 1024 * 1024 * 1024},
                 {"k", 1000},  {"m", 1000 * 1000},  {"g", 1000000000U},
                 {"b", 1}};
    uint64_t value, factor = 1;

    if (row->flags & CONFIG_OR_SHARE && slice_is(text, "auto")) {
        *value_out = CONFIG_AUTO;
        return FAULT_NONE;
    }
    if (row->flags & CONFIG_OR_SHARE && text.len > 0 && text.ptr[text.len - 1] == '%')
        return parse_share((struct slice){text.ptr, text.len - 1}, value_out);
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        size_t len = strlen(units[i].suffix);

        if (text.len > len && strncasecmp(text.ptr + text.len - len, units[i].suffix, len) == 0) {
            factor = units[i].factor;
            text.len -= len;
            break;
        }
    }
    if (!slice_to_digits(text, 10, &value) || __builtin_mul_overflow(value, factor, &value))
        return FAULT_FORM;
    if (value < row->min || value > row->max)
        return FAULT_RANGE;
    *value_out = value;
    return FAULT_NONE;
}

static void format_bytes(uint64_t value, struct buf *out)
{
    if (value == CONFIG_AUTO)
        config_append(out, "auto");
    else if (value & CONFIG_SHARE)
        buf_appendf(out, "%" PRIu64 "%%", value & ~CONFIG_SHARE);
    else
        buf_appendf(out, "%" PRIu64, value);
}

static enum config_fault parse_rate(const struct config_row *row, struct slice text, double *value_out)
{
    char copy[64], *end;
    double value;

    if (text.len == 0 || text.len >= sizeof(copy))
        return FAULT_FORM;
    for (size_t i = 0; i < text.len; i++) /* strtod() would also take spaces, hexadecimal, "inf" and "nan" */
        if (text.ptr[i] == '\0' || !strchr("0123456789+-.eE", text.ptr[i]))
            return FAULT_FORM;
    memcpy(copy, text.ptr, text.len);
    copy[text.len] = '\0';
    value = strtod(copy, &end);
    if (*end != '\0')
        return FAULT_FORM;
    if (!(value > (double)row->min && value < (double)row->max))
        return FAULT_RANGE;
    *value_out = value;
    return FAULT_NONE;
}

/* ---- words and texts ---- */

static enum config_fault parse_bool(struct slice text, bool *value_out)
{
    *value_out = slice_is(text, "yes");
    return *value_out || slice_is(text, "no") ? FAULT_NONE : FAULT_FORM;
}

static enum config_fault parse_word(const struct config_row *row, struct slice text, int *value_out)
{
    for (int i = 0; row->words[i]; i++) {
        if (slice_is(text, row->words[i])) {
            *value_out = i;
            return FAULT_NONE;
        }
    }
    return FAULT_FORM;
}

static enum config_fault parse_string(struct slice text, char **value_out)
{
    char *copy;

    if (text.len > 0 && memchr(text.ptr, '\0', text.len))
        return FAULT_FORM;
    copy = slice_copy(text);
    if (!copy)
        return FAULT_NO_MEMORY;
    *value_out = copy;
    return FAULT_NONE;
}

bool config_next_word(struct slice *text, struct slice *word_out)
{
    size_t start = 0, end;

    while (start < text->len && (text->ptr[start] == ' ' || text->ptr[start] == '\t'))
        start++;
    for (end = start; end < text->len && text->ptr[end] != ' ' && text->ptr[end] != '\t'; end++)
        ;
    if (start == end)
        return false;
    *word_out = (struct slice){text->ptr + start, end - start};
    *text = (struct slice){text->ptr + end, text->len - end};
    return true;
}

static size_t count_words(struct slice text)
{
    size_t n = 0;
    for (struct slice word; config_next_word(&text, &word); n++)
        ;
    return n;
}

/* ---- lists ---- */

/* Numeric only: a name would make the start depend on a resolver. The kernel checks a zone ("fe80::1%eth0"). */
static bool is_address(struct slice text)
{
    char copy[INET6_ADDRSTRLEN], parsed[sizeof(struct in6_addr)];
    const char *zone;

    if (text.len > 0 && text.ptr[0] == '-')
        text = (struct slice){text.ptr + 1, text.len - 1};
    if ((text.len == 1 && text.ptr[0] == '*') || (text.len == 3 && memcmp(text.ptr, "::*", 3) == 0))
        return true;
    if (text.len == 0 || memchr(text.ptr, '\0', text.len))
        return false;
    zone = memchr(text.ptr, '%', text.len);
    if (zone) {
        if (zone + 1 == text.ptr + text.len)
            return false;
        text.len = (size_t)(zone - text.ptr);
    }
    if (text.len >= sizeof(copy))
        return false;
    memcpy(copy, text.ptr, text.len);
    copy[text.len] = '\0';
    return inet_pton(AF_INET6, copy, parsed) == 1 || (!zone && inet_pton(AF_INET, copy, parsed) == 1);
}

static void free_list(struct config_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->items[i]);
    free(list->items);
    *list = (struct config_list){NULL, 0};
}

static enum config_fault parse_addresses(struct slice text, struct config_list *value_out)
{
    struct config_list list = {NULL, 0};
    size_t n = count_words(text);
    struct slice word;

    if (n > CONFIG_MAX_ADDRESSES)
        return FAULT_FORM;
    list.items = calloc(n == 0 ? 1 : n, sizeof(*list.items));
    if (!list.items)
        return FAULT_NO_MEMORY;
    while (config_next_word(&text, &word)) {
        char *copy = is_address(word) ? slice_copy(word) : NULL;

        if (!copy) {
            free_list(&list);
            return is_address(word) ? FAULT_NO_MEMORY : FAULT_FORM;
        }
        list.items[list.count++] = copy;
    }
    *value_out = list;
    return FAULT_NONE;
}

static enum config_fault parse_rules(struct slice text, struct config_rules *value_out)
{
    struct config_rules rules = {NULL, 0};
    size_t n = count_words(text);
    struct slice word;

    if (n % 2 != 0)
        return FAULT_FORM;
    rules.items = calloc(n == 0 ? 1 : n / 2, sizeof(*rules.items));
    if (!rules.items)
        return FAULT_NO_MEMORY;
    for (; rules.count < n / 2; rules.count++) {
        uint64_t seconds = 0, changes = 0;
        bool good = config_next_word(&text, &word) && slice_to_digits(word, 10, &seconds) && seconds >= 1 &&
                    seconds <= INT32_MAX;

        good = config_next_word(&text, &word) && slice_to_digits(word, 10, &changes) && good;
        if (!good) {
            free(rules.items);
            return FAULT_FORM;
        }
        rules.items[rules.count] = (struct config_rule){(int64_t)seconds, changes};
    }
    *value_out = rules;
    return FAULT_NONE;
}

/* ---- client-output-buffer-limit ---- */

/* CONFIG GET of Redis still says "slave"; both words are accepted. */
static const char *const class_names[CONFIG_CLIENT_CLASSES] = {"normal", "slave", "pubsub"};

static bool parse_class(struct slice word, enum config_client_class *class_out)
{
    for (int i = 0; i < CONFIG_CLIENT_CLASSES; i++) {
        if (slice_is(word, class_names[i])) {
            *class_out = (enum config_client_class)i;
            return true;
        }
    }
    *class_out = CONFIG_CLIENT_REPLICA;
    return slice_is(word, "replica");
}

static enum config_fault limits_parse(struct slice text, struct config_output_limits *value)
{
    static const struct config_row bytes = {.type = CONFIG_BYTES, .max = INT64_MAX};
    static const struct config_row seconds = {.type = CONFIG_INTEGER, .max = INT32_MAX};
    struct config_output_limits limits = *value;
    struct slice word;
    size_t n = 0;

    for (; config_next_word(&text, &word); n++) {
        enum config_client_class class;
        struct config_output_limit limit;

        if (!parse_class(word, &class))
            return FAULT_CLASS;
        void *const numbers[] = {&limit.hard, &limit.soft, &limit.soft_seconds};
        for (int i = 0; i < 3; i++) {
            if (!config_next_word(&text, &word))
                return FAULT_FORM;
            if (config_value_parse(i < 2 ? &bytes : &seconds, word, numbers[i]) != FAULT_NONE)
                return FAULT_RANGE;
        }
        limits.classes[class] = limit;
    }
    if (n == 0)
        return FAULT_FORM;
    *value = limits;
    return FAULT_NONE;
}

static void limits_format(const struct config_output_limits *value, struct buf *out)
{
    for (int i = 0; i < CONFIG_CLIENT_CLASSES; i++) {
        const struct config_output_limit *limit = &value->classes[i];

        buf_appendf(out, "%s%s %" PRIu64 " %" PRIu64 " %" PRId64, i > 0 ? " " : "", class_names[i], limit->hard,
                    limit->soft, limit->soft_seconds);
    }
}

/* ---- by type ---- */

enum config_fault config_value_parse(const struct config_row *row, struct slice text, void *value_out)
{
    switch (row->type) {
    case CONFIG_BOOL:
        return parse_bool(text, value_out);
    case CONFIG_INTEGER:
        return parse_integer(row, text, value_out);
    case CONFIG_BYTES:
        return parse_bytes(row, text, value_out);
    case CONFIG_RATE:
        return parse_rate(row, text, value_out);
    case CONFIG_WORD:
        return parse_word(row, text, value_out);
    case CONFIG_USERS:
        return parse_string(text, value_out);
    case CONFIG_STRING:
        return row->flags & CONFIG_SECRET && text.len > CONFIG_MAX_SECRET ? FAULT_RANGE : parse_string(text, value_out);
    case CONFIG_PASSWORD:
        if (text.len > CONFIG_MAX_SECRET)
            return FAULT_RANGE;
        *(struct slice *)value_out = (struct slice){slice_copy(text), text.len};
        return ((struct slice *)value_out)->ptr ? FAULT_NONE : FAULT_NO_MEMORY;
    case CONFIG_ADDRESSES:
        return parse_addresses(text, value_out);
    case CONFIG_RULES:
        return parse_rules(text, value_out);
    case CONFIG_EVENTS:
        return notify_flags_parse(text, value_out) ? FAULT_NONE : FAULT_FORM;
    case CONFIG_OUTPUT_LIMITS:
        return limits_parse(text, value_out);
    }
    return FAULT_FORM;
}

/* Writes the fewest digits that read back as the same number. */
static void format_rate(double rate, struct buf *out)
{
    char text[40];

    for (int precision = 1; precision <= 17; precision++) {
        snprintf(text, sizeof(text), "%.*g", precision, rate);
        if (strtod(text, NULL) == rate)
            break;
    }
    config_append(out, text);
}

static void format_addresses(const struct config_list *list, struct buf *out)
{
    for (size_t i = 0; i < list->count; i++) {
        config_append(out, i > 0 ? " " : "");
        config_append(out, list->items[i]);
    }
}

static void format_rules(const struct config_rules *rules, struct buf *out)
{
    for (size_t i = 0; i < rules->count; i++)
        buf_appendf(out, "%s%" PRId64 " %" PRIu64, i > 0 ? " " : "", rules->items[i].seconds, rules->items[i].changes);
}

void config_value_format(const struct config_row *row, const void *value, struct buf *out)
{
    switch (row->type) {
    case CONFIG_BOOL:
        config_append(out, *(const bool *)value ? "yes" : "no");
        break;
    case CONFIG_INTEGER:
        if (row->flags & CONFIG_OCTAL)
            buf_appendf(out, "%" PRIo64, (uint64_t) * (const int64_t *)value);
        else
            buf_appendf(out, "%" PRId64, *(const int64_t *)value);
        break;
    case CONFIG_BYTES:
        format_bytes(*(const uint64_t *)value, out);
        break;
    case CONFIG_RATE:
        format_rate(*(const double *)value, out);
        break;
    case CONFIG_WORD:
        config_append(out, row->words[*(const int *)value]);
        break;
    case CONFIG_STRING:
    case CONFIG_USERS:
        config_append(out, *(char *const *)value);
        break;
    case CONFIG_PASSWORD: {
        const struct slice *password = value;

        buf_append(out, password->ptr, password->len);
        break;
    }
    case CONFIG_ADDRESSES:
        format_addresses(value, out);
        break;
    case CONFIG_RULES:
        format_rules(value, out);
        break;
    case CONFIG_EVENTS: {
        char text[NOTIFY_FLAGS_TEXT];

        notify_flags_format(*(const unsigned *)value, text);
        config_append(out, text);
        break;
    }
    case CONFIG_OUTPUT_LIMITS:
        limits_format(value, out);
        break;
    }
}

bool config_value_copy(const struct config_row *row, const void *value, void *copy_out)
{
    struct buf text;
    buf_init(&text, SIZE_MAX / 2);
    config_value_format(row, value, &text);
    enum config_fault fault = buf_failed(&text)
                                  ? FAULT_NO_MEMORY
                                  : config_value_parse(row, (struct slice){buf_head(&text), buf_len(&text)}, copy_out);
    buf_deinit(&text);
    CHECK(fault == FAULT_NONE || fault == FAULT_NO_MEMORY);
    return fault == FAULT_NONE;
}

void config_value_free(const struct config_row *row, void *value)
{
    if (row->type == CONFIG_STRING || row->type == CONFIG_USERS) {
        free(*(char **)value);
        *(char **)value = NULL;
    } else if (row->type == CONFIG_PASSWORD) {
        free((char *)(uintptr_t)((struct slice *)value)->ptr);
        *(struct slice *)value = (struct slice){NULL, 0};
    } else if (row->type == CONFIG_ADDRESSES) {
        free_list(value);
    } else if (row->type == CONFIG_RULES) {
        free(((struct config_rules *)value)->items);
        *(struct config_rules *)value = (struct config_rules){NULL, 0};
    }
}
