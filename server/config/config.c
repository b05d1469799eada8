/* Four operations depend on a setting's type: parse (text to value), format, copy and free. config_set() parses into a
 * value of its own and then replaces the old value, so that a refusal changes nothing. Defaults are texts that are
 * parsed like any other: a default that its own setting would refuse cannot exist. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "bloom_size.h"
#include "check.h"
#include "config_internal.h"

static const char *const log_formats[] = {"text", "logfmt", "json", NULL};
static const char *const log_levels[] = {"debug", "verbose", "notice", "warning", "nothing", NULL};
static const char *const endpoint_types[] = {"ip", "hostname", "unknown-endpoint", NULL};
static const char *const quarantine_policies[] = {"error", "maybe", NULL};
static const char *const enable_policies[] = {"no", "local", "yes", NULL};
static const char *const tls_auths[] = {"no", "yes", "optional", NULL};                  /* enum tls_auth */
static const char *const appendfsync_policies[] = {"always", "everysec", "no", NULL};    /* enum journal_policy */
static const char *const bf_layouts[] = {"na", "redisbloom", "valkey", "blocked", NULL}; /* enum bf_layout */
static const char *const bf_contracts[] = {"redisbloom", "valkey", NULL};                /* enum bf_contract */
static const char *const missing_filter_replies[] = {"absent", "null", "error", NULL};
static const char *const acl_pubsub_defaults[] = {"allchannels", "resetchannels", NULL}; /* enum pubsub_default */
static const char *const memory_policies[] = {"noeviction", "reload", "maybe", NULL};

#define ROW(type_, part, field, name_, default_, flags_, doc_)                                               \
    .name = name_, .type = CONFIG_##type_, .flags = (flags_), .offset = offsetof(struct config, part.field), \
    .size = sizeof(((struct config *)NULL)->part.field), .default_text = default_, .doc = doc_
#define SETTING(type, part, field, name, def, flags, doc) {ROW(type, part, field, name, def, flags, doc), .unit = ""},
#define SETTING_NUMBER(type, part, field, name, def, flags, min_, max_, unit_, doc) \
    {ROW(type, part, field, name, def, flags, doc), .min = min_, .max = max_, .unit = unit_},
#define SETTING_WORD(part, field, name, def, flags, words_, doc) \
    {ROW(WORD, part, field, name, def, flags, doc), .words = words_, .unit = ""},

static const struct config_row table[] = {
#include "config.def"
};

#define NROWS (sizeof(table) / sizeof(table[0]))
_Static_assert(NROWS <= CONFIG_MAX_SETTINGS, "CONFIG_MAX_SETTINGS");

const struct config_row *config_table(size_t *n_out)
{
    *n_out = NROWS;
    return table;
}

const struct config_row *config_find(struct slice name)
{
    for (size_t i = 0; i < NROWS; i++)
        if (slice_is(name, table[i].name))
            return &table[i];
    return NULL;
}

/* ---- small text helpers ---- */

void config_append(struct buf *out, const char *text)
{
    buf_append(out, text, strlen(text));
}

void config_format_bytes(uint64_t bytes, struct buf *out)
{
    static const char *const units[] = {"", "kb", "mb", "gb"};
    size_t unit = 0;

    while (bytes != 0 && bytes % 1024 == 0 && unit < 3) {
        bytes /= 1024;
        unit++;
    }
    buf_appendf(out, "%" PRIu64 "%s", bytes, units[unit]);
}

/* ---- life ---- */

static void *field_of(struct config *cfg, const struct config_row *row)
{
    return (char *)cfg + row->offset;
}

static const void *const_field_of(const struct config *cfg, const struct config_row *row)
{
    return (const char *)cfg + row->offset;
}

void config_deinit(struct config *cfg)
{
    for (size_t i = 0; i < NROWS; i++)
        config_value_free(&table[i], field_of(cfg, &table[i]));
    memset(cfg, 0, sizeof(*cfg));
}

int config_init(struct config *cfg)
{
    memset(cfg, 0, sizeof(*cfg));
    for (size_t i = 0; i < NROWS; i++) {
        enum config_fault fault =
            config_value_parse(&table[i], slice_of(table[i].default_text), field_of(cfg, &table[i]));

        CHECK(fault == FAULT_NONE || fault == FAULT_NO_MEMORY);
        if (fault != FAULT_NONE) {
            config_deinit(cfg);
            return -ENOMEM;
        }
    }
    return 0;
}

int config_clone(const struct config *cfg, struct config *copy_out)
{
    struct config copy;

    memset(&copy, 0, sizeof(copy));
    for (size_t i = 0; i < NROWS; i++) {
        if (!config_value_copy(&table[i], const_field_of(cfg, &table[i]), field_of(&copy, &table[i]))) {
            config_deinit(&copy);
            return -ENOMEM;
        }
    }
    *copy_out = copy;
    return 0;
}

/* ---- refusals ---- */

static int refuse_unknown(struct slice name, enum config_source source, struct errbuf *err)
{
    int len = config_shown_name(name);

    if (source == CONFIG_RUNTIME)
        errbuf_set(err, "Unknown option or number of arguments for CONFIG SET - '%.*s'", len, name.ptr);
    else
        errbuf_set(err, "unknown setting '%.*s'", len, name.ptr);
    return CONFIG_UNKNOWN;
}

static int refuse(const struct config_row *row, enum config_fault fault, struct slice value, enum config_source source,
                  struct errbuf *err)
{
    char text[ERRBUF_SIZE];
    int len = value.len < 64 ? (int)value.len : 64;

    config_fault_text(row, fault, text, sizeof(text));
    if (source == CONFIG_RUNTIME)
        errbuf_set(err, "CONFIG SET failed (possibly related to argument '%s') - %s", row->name, text);
    else if (fault == FAULT_NO_MEMORY || row->flags & CONFIG_SECRET || row->type == CONFIG_STRING ||
             row->type == CONFIG_USERS)
        errbuf_set(err, "'%s': %s", row->name, text);
    else
        errbuf_set(err, "'%s': %s (given: '%.*s%s')", row->name, text, len, value.ptr ? value.ptr : "",
                   value.len > 64 ? "..." : "");
    return fault == FAULT_NO_MEMORY ? -ENOMEM : CONFIG_REFUSED;
}

/* ---- setting ---- */

int config_set(struct config *cfg, struct slice name, struct slice value, enum config_source source, struct errbuf *err)
{
    const struct config_row *row = config_find(name);
    union config_value parsed;
    enum config_fault fault;

    if (!row)
        return refuse_unknown(name, source, err);
    if (source == CONFIG_RUNTIME && row->flags & CONFIG_START_ONLY)
        return refuse(row, FAULT_START_ONLY, value, source, err);
    if (source == CONFIG_RUNTIME && value.len > CONFIG_VALUE_MAX)
        return refuse(row, FAULT_LENGTH, value, source, err);
    memset(&parsed, 0, sizeof(parsed));
    if (row->type == CONFIG_OUTPUT_LIMITS)
        parsed.limits = *(const struct config_output_limits *)const_field_of(cfg, row);
    fault = config_value_parse(row, value, &parsed);
    if (fault != FAULT_NONE)
        return refuse(row, fault, value, source, err);
    config_value_free(row, field_of(cfg, row));
    memcpy(field_of(cfg, row), &parsed, row->size);
    return CONFIG_OK;
}

/* A refusal that concerns several settings; its text names one of them. */
static int refuse_together(const char *name, enum config_source source, const char *text, struct errbuf *err)
{
    if (source == CONFIG_RUNTIME)
        errbuf_set(err, "CONFIG SET failed (possibly related to argument '%s') - %s", name, text);
    else
        errbuf_set(err, "'%s': %s", name, text);
    return CONFIG_REFUSED;
}

int config_patterns(const char *text, struct slice patterns_out[CONFIG_MAX_PATTERNS])
{
    struct slice rest = {text, strlen(text)}, word;
    int n = 0;
    while (config_next_word(&rest, &word)) {
        if (n == CONFIG_MAX_PATTERNS || word.len > CONFIG_MAX_PATTERN)
            return -1;
        patterns_out[n++] = word;
    }
    return n;
}

static int check_ports(const struct config *cfg, struct errbuf *err)
{
    const char *text = NULL;

    if (cfg->metrics.port != 0 && cfg->metrics.port == cfg->network.port)
        text = "'metrics-port' is the same as 'port'";
    else if (cfg->metrics.port != 0 && cfg->metrics.port == cfg->tls.port)
        text = "'metrics-port' is the same as 'tls-port'";
    else if (cfg->tls.port != 0 && cfg->tls.port == cfg->network.port)
        text = "'tls-port' is the same as 'port'";
    else if (((cfg->network.port == 0 && cfg->tls.port == 0) || cfg->network.bind.count == 0) &&
             cfg->network.unixsocket[0] == '\0')
        text = "nothing to listen on: 'port' is 0 or 'bind' is empty, without 'tls-port' or 'unixsocket'";
    return text ? errbuf_fail(err, CONFIG_REFUSED, "%s", text) : CONFIG_OK;
}

/* A host's name or address, as it can stand in a line of CLUSTER NODES. */
static bool is_host(const char *text)
{
    size_t len = strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:%");
    return text[len] == '\0' && len <= CONFIG_MAX_HOST;
}

int config_check(const struct config *cfg, enum config_source source, struct errbuf *err)
{
    double first_layer = cfg->filters.expansion_factor == 0 ? cfg->filters.error_rate : cfg->filters.error_rate / 2;
    struct slice patterns[CONFIG_MAX_PATTERNS];
    struct bloom_size size;
    struct errbuf reason = {{0}};

    if (cfg->clients.reply_buffer_high_water > cfg->clients.reply_buffer_limit)
        return refuse_together("reply-buffer-high-water", source, "must not be above 'reply-buffer-limit'", err);
    if (!is_host(cfg->cluster.announce_ip) || strlen(cfg->cluster.announce_ip) > 45)
        return refuse_together("cluster-announce-ip", source, "must be an IP address", err);
    if (!is_host(cfg->cluster.announce_hostname))
        return refuse_together("cluster-announce-hostname", source,
                               "must be a host's name of at most 255 letters, digits, '-', '_' and '.'", err);
    /* Otherwise every add that must create its filter would fail. */
    if (bloom_size_plan((uint64_t)cfg->filters.initial_size, first_layer, &size, &reason) != BLOOM_SIZE_OK) {
        errbuf_prefix(&reason, "cannot be had with bf-initial-size %" PRId64, cfg->filters.initial_size);
        return refuse_together("bf-error-rate", source, reason.text, err);
    }
    if (config_patterns(cfg->metrics.filters, patterns) < 0)
        return refuse_together("metrics-filters", source, "must be at most 16 patterns of 256 bytes", err);
    if (cfg->users.aclfile[0] && cfg->users.user[0])
        return errbuf_fail(err, CONFIG_REFUSED,
                           "'user' lines and 'aclfile' exclude each other: keep all users in one place");
    return check_ports(cfg, err);
}

void config_get(const struct config *cfg, const struct config_row *row, struct buf *out)
{
    config_value_format(row, const_field_of(cfg, row), out);
}

/* ---- words ---- */

static void append_words(struct buf *out, const struct slice *values, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (buf_len(out) > 0)
            buf_append(out, " ", 1);
        buf_append(out, values[i].ptr, values[i].len);
    }
}

/* `user`: each line adds to the value, except for an empty one. */
static void append_user(const struct config *cfg, const struct config_row *row, const struct slice *values, size_t n,
                        struct buf *out)
{
    config_get(cfg, row, out);
    if (n == 1 && values[0].len == 0)
        return;
    if (buf_len(out) > 0)
        buf_append(out, "\n", 1);
    for (size_t i = 0; i < n; i++) {
        if (i > 0)
            buf_append(out, " ", 1);
        config_print_word(values[i], out);
    }
}

int config_apply(struct config *cfg, struct config_merge *merge, struct slice name, const struct slice *values,
                 size_t n, enum config_source source, struct errbuf *err)
{
    const struct config_row *row = config_find(name);
    struct buf joined;
    int status;

    if (!row)
        return refuse_unknown(name, source, err);
    if (n == 0)
        return errbuf_fail(err, CONFIG_REFUSED, "'%s' needs a value", row->name);
    if (n > 1 && !config_takes_words(row))
        return errbuf_fail(err, CONFIG_REFUSED, "'%s' takes one value; put a value with spaces in quotes", row->name);
    buf_init(&joined, SIZE_MAX);
    if (row->type == CONFIG_RULES && merge->save_seen && !(n == 1 && values[0].len == 0))
        config_get(cfg, row, &joined);
    if (row->type == CONFIG_USERS)
        append_user(cfg, row, values, n, &joined);
    else
        append_words(&joined, values, n);
    if (buf_failed(&joined))
        status = refuse(row, FAULT_NO_MEMORY, (struct slice){NULL, 0}, source, err);
    else
        status = config_set(cfg, name, (struct slice){buf_head(&joined), buf_len(&joined)}, source, err);
    if (row->type == CONFIG_RULES && status == CONFIG_OK)
        merge->save_seen = true;
    buf_deinit(&joined);
    return status;
}
