/* One setting at a time: ranges, forms, refusals, and the life of the struct. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "config_rig.h"
#include "log.h"

TestSuite(config, .init = set_up, .fini = tear_down);

static int set(const char *name, const char *value, enum config_source source)
{
    return config_set(&cfg, slice_of(name), slice_of(value), source, &err);
}

/* The value as CONFIG GET shows it; valid until the next call. */
static const char *get_from(const struct config *from, const char *name)
{
    static char value[1024];
    const struct config_row *row = config_find(slice_of(name));
    struct buf out;
    cr_assert_not_null(row, "no setting %s", name);
    buf_init(&out, SIZE_MAX);
    config_get(from, row, &out);
    cr_assert_lt(buf_len(&out), sizeof(value));
    *(char *)mempcpy(value, buf_len(&out) ? buf_head(&out) : "", buf_len(&out)) = '\0';
    buf_deinit(&out);
    return value;
}

static const char *get(const char *name)
{
    return get_from(&cfg, name);
}

static void accepts(const char *name, const char *value, const char *shown)
{
    cr_assert_eq(set(name, value, CONFIG_FILE), CONFIG_OK, "%s '%s': %s", name, value, err.text);
    cr_assert_str_eq(get(name), shown, "%s '%s' shows as '%s'", name, value, get(name));
}

/* Refused from each source, with this text from a file, and without any change. */
static void refuses(const char *name, const char *value, const char *file_text)
{
    char before[1024];

    snprintf(before, sizeof(before), "%s", get(name));
    cr_assert_eq(set(name, value, CONFIG_RUNTIME), CONFIG_REFUSED, "%s '%s' at run time", name, value);
    cr_assert_eq(set(name, value, CONFIG_ARGUMENT), CONFIG_REFUSED, "%s '%s' as an argument", name, value);
    cr_assert_eq(set(name, value, CONFIG_FILE), CONFIG_REFUSED, "%s '%s' in a file", name, value);
    cr_assert_str_eq(err.text, file_text);
    cr_assert_str_eq(get(name), before, "a refused value changed %s", name);
}

static void runtime_refusal(const char *name, const char *value, const char *expected)
{
    cr_assert_neq(set(name, value, CONFIG_RUNTIME), CONFIG_OK, "%s '%s' was accepted", name, value);
    cr_assert_str_eq(err.text, expected);
}

/* The defaults are those of the table, shown as the table writes them (sizes in bytes). */
Test(config, defaults_are_the_tables)
{
    size_t n;
    const struct config_row *rows = config_table(&n);

    cr_assert_eq(cfg.network.port, 6379);
    cr_assert_eq(cfg.network.protected_mode, true);
    cr_assert_eq(cfg.process.loglevel, LOG_LEVEL_NOTICE);
    cr_assert_eq(cfg.data.quarantined_filters, QUARANTINE_ERROR);
    cr_assert_eq(cfg.clients.proto_max_bulk_len, UINT64_C(512) * 1024 * 1024);
    cr_assert_eq(cfg.network.bind.count, 2);
    cr_assert_str_eq(cfg.network.bind.items[1], "-::1");
    cr_assert_eq(cfg.data.save.count, 1);
    cr_assert_eq(cfg.data.save.items[0].seconds, 3600);
    cr_assert_eq(cfg.data.save.items[0].changes, 1);
    cr_assert_eq(cfg.log.appendonly, true);
    cr_assert_eq(cfg.log.appendfsync, 1);
    for (size_t i = 0; i < n; i++) {
        if (rows[i].type != CONFIG_BYTES)
            cr_assert_str_eq(get(rows[i].name), rows[i].default_text);
        cr_assert_eq(config_set(&cfg, slice_of(rows[i].name), slice_of(rows[i].default_text), CONFIG_FILE, &err),
                     CONFIG_OK);
    }
}

/* Every row can be printed: unique lower-case names, sentences with an end. */
Test(config, every_row_is_documented_and_unique)
{
    size_t n;
    const struct config_row *rows = config_table(&n);

    for (size_t i = 0; i < n; i++) {
        cr_assert_gt(strlen(rows[i].doc), 20, "%s", rows[i].name);
        cr_assert_eq(rows[i].doc[strlen(rows[i].doc) - 1], '.', "%s", rows[i].name);
        cr_assert_eq(strspn(rows[i].name, "abcdefghijklmnopqrstuvwxyz-"), strlen(rows[i].name));
        cr_assert_eq(config_find(slice_of(rows[i].name)), &rows[i], "%s is there twice", rows[i].name);
    }
}

static void write_number(const struct config_row *row, uint64_t number, char *out, size_t size)
{
    if (row->flags & CONFIG_OCTAL)
        snprintf(out, size, "%" PRIo64, number);
    else
        snprintf(out, size, "%" PRIu64, number);
}

/* Every integer and size: both ends of its range are accepted, one beyond is refused in both wordings. */
Test(config, ranges_end_where_the_table_says)
{
    size_t n;
    const struct config_row *rows = config_table(&n);
    unsigned seen = 0;

    for (size_t i = 0; i < n; i++) {
        const struct config_row *row = &rows[i];
        char value[32], expected[256];

        if (row->type != CONFIG_INTEGER && row->type != CONFIG_BYTES)
            continue;
        seen++;
        for (int end = 0; end < 2; end++) {
            write_number(row, end ? row->max : row->min, value, sizeof(value));
            accepts(row->name, value, value);
        }
        write_number(row, row->max + 1, value, sizeof(value));
        cr_assert_eq(set(row->name, value, CONFIG_FILE), CONFIG_REFUSED, "%s %s", row->name, value);
        if (row->min > 0) {
            write_number(row, row->min - 1, value, sizeof(value));
            cr_assert_eq(set(row->name, value, CONFIG_FILE), CONFIG_REFUSED, "%s %s", row->name, value);
            cr_assert_not_null(strstr(err.text, row->name));
        }
        bool or_minus_1 = (row->flags & CONFIG_OR_MINUS_1) != 0;
        cr_assert_eq(set(row->name, "-1", CONFIG_FILE), or_minus_1 ? CONFIG_OK : CONFIG_REFUSED, "%s -1", row->name);
        cr_assert_eq(set(row->name, "-2", CONFIG_FILE), CONFIG_REFUSED, "%s -2", row->name);
        if (or_minus_1)
            continue;
        if (row->flags & CONFIG_START_ONLY)
            continue;
        snprintf(expected, sizeof(expected),
                 "CONFIG SET failed (possibly related to argument '%s') - argument must be between %" PRIu64
                 " and %" PRIu64 " inclusive",
                 row->name, row->min, row->max);
        if (row->type == CONFIG_INTEGER)
            runtime_refusal(row->name, "-1", expected);
        if (row->max < INT64_MAX) {
            snprintf(value, sizeof(value), "%" PRIu64, row->max + 1);
            runtime_refusal(row->name, value, expected);
        }
    }
    cr_assert_gt(seen, 15);
}

/* Integers have one form only. */
Test(config, integers_are_strict)
{
    const char *const bad[] = {"",
                               " 1",
                               "1 ",
                               "+1",
                               "01",
                               "1x",
                               "0x1",
                               "1.0",
                               "1e3",
                               "-",
                               "-0",
                               "9223372036854775808",
                               "-9223372036854775809",
                               "18446744073709551616",
                               "99999999999999999999999999"};

    accepts("timeout", "0", "0");
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char expected[128];

        snprintf(expected, sizeof(expected), "'timeout': argument couldn't be parsed into an integer (given: '%s')",
                 bad[i]);
        refuses("timeout", bad[i], expected);
        runtime_refusal(
            "timeout", bad[i],
            "CONFIG SET failed (possibly related to argument 'timeout') - argument couldn't be parsed into an "
            "integer");
    }
    runtime_refusal("timeout", "-9223372036854775808",
                    "CONFIG SET failed (possibly related to argument 'timeout') - argument must be between 0 and "
                    "2147483647 inclusive");
}

/* Redis's units, in either case; values above 64 bits are refused. */
Test(config, memory_values_have_units)
{
    static const struct {
        const char *value, *shown;
    } good[] = {{"0", "0"},
                {"1000", "1000"},
                {"7b", "7"},
                {"1k", "1000"},
                {"1kb", "1024"},
                {"2K", "2000"},
                {"2KB", "2048"},
                {"3m", "3000000"},
                {"3Mb", "3145728"},
                {"1g", "1000000000"},
                {"1gB", "1073741824"},
                {"00", "0"},
                {"0100mb", "104857600"},
                {"8388607gb", "9007198180999168"},
                {"9223372036854775807", "9223372036854775807"}};
    const char *const bad[] = {
        "", "k", "kb", "1tb", "1 kb", "-1", "+1", "1.5gb", "abc", "18446744073709551615gb", "018446744073709551616"};

    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        accepts("maxmemory", good[i].value, good[i].shown);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char expected[128];

        snprintf(expected, sizeof(expected), "'maxmemory': argument must be a memory value (given: '%s')", bad[i]);
        refuses("maxmemory", bad[i], expected);
        runtime_refusal(
            "maxmemory", bad[i],
            "CONFIG SET failed (possibly related to argument 'maxmemory') - argument must be a memory value");
    }
    refuses("proto-inline-max-size", "63",
            "'proto-inline-max-size': argument must be between 64 and 16777216 inclusive (given: '63')");
    refuses("proto-inline-max-size", "16385kb",
            "'proto-inline-max-size': argument must be between 64 and 16777216 inclusive (given: '16385kb')");
}

/* yes and no, nothing else. */
Test(config, booleans_are_yes_or_no)
{
    accepts("protected-mode", "no", "no");
    accepts("protected-mode", "YES", "yes");
    cr_assert(cfg.network.protected_mode);
    refuses("protected-mode", "true", "'protected-mode': argument must be 'yes' or 'no' (given: 'true')");
    refuses("protected-mode", "", "'protected-mode': argument must be 'yes' or 'no' (given: '')");
    refuses("protected-mode", "yess", "'protected-mode': argument must be 'yes' or 'no' (given: 'yess')");
    runtime_refusal(
        "protected-mode", "1",
        "CONFIG SET failed (possibly related to argument 'protected-mode') - argument must be 'yes' or 'no'");
}

/* Words come from the row; each of them is accepted, others are refused with the list. */
Test(config, words_are_those_of_the_row)
{
    size_t n;
    const struct config_row *rows = config_table(&n);

    for (size_t i = 0; i < n; i++) {
        if (rows[i].type != CONFIG_WORD)
            continue;
        for (int w = 0; rows[i].words[w] != NULL; w++) {
            accepts(rows[i].name, rows[i].words[w], rows[i].words[w]);
            cr_assert_eq(*(const int *)(const void *)((const char *)&cfg + rows[i].offset), w);
        }
    }
    accepts("loglevel", "Debug", "debug");
    cr_assert_eq(cfg.process.loglevel, LOG_LEVEL_DEBUG);
    accepts("loglevel", "nothing", "nothing");
    cr_assert_eq(cfg.process.loglevel, LOG_LEVEL_NOTHING);
    accepts("quarantined-filters", "maybe", "maybe");
    cr_assert_eq(cfg.data.quarantined_filters, QUARANTINE_MAYBE);
    refuses("loglevel", "loud",
            "'loglevel': argument(s) must be one of the following: debug, verbose, notice, warning, nothing (given: "
            "'loud')");
    refuses("appendfsync", "sometimes",
            "'appendfsync': argument(s) must be one of the following: always, everysec, no (given: 'sometimes')");
    runtime_refusal(
        "maxmemory-policy", "allkeys-lru",
        "CONFIG SET failed (possibly related to argument 'maxmemory-policy') - argument(s) must be one of the "
        "following: noeviction, reload, maybe");
}

/* A rate is strictly between 0 and 1, and is shown without needless digits. */
Test(config, rates_are_between_zero_and_one)
{
    const char *const bad[] = {"0",       "1",    "-0.1", "1.5", "0.0", "nan", "inf",
                               "0x0.1p0", "0.1 ", " 0.1", "",    "0,1", "e",   "1e-400"};

    accepts("bf-error-rate", "0.001", "0.001");
    accepts("bf-error-rate", "1e-7", "1e-07");
    accepts("bf-error-rate", "0.30000000000000004", "0.30000000000000004");
    accepts("bf-error-rate", "0.9999999999999999", "0.9999999999999999");
    cr_assert_float_eq(cfg.filters.error_rate, 1.0, 1e-15);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char expected[128];

        snprintf(expected, sizeof(expected),
                 "'bf-error-rate': argument must be a number above 0 and below 1 (given: '%s')", bad[i]);
        refuses("bf-error-rate", bad[i], expected);
    }
    runtime_refusal(
        "bf-error-rate", "2",
        "CONFIG SET failed (possibly related to argument 'bf-error-rate') - argument must be a number above 0 and "
        "below 1");
}

/* Letters in any order are shown in Redis's. 'A' is all classes but those of missing and new keys. */
Test(config, event_letters)
{
    accepts("notify-keyspace-events", "KEA", "AKE");
    accepts("notify-keyspace-events", "dtexzhsl$gEK", "AKE");
    accepts("notify-keyspace-events", "mnAK", "AnKm");
    accepts("notify-keyspace-events", "xxgK", "gxK");
    accepts("notify-keyspace-events", "", "");
    refuses("notify-keyspace-events", "KQ",
            "'notify-keyspace-events': Invalid event class character. Use 'Ag$lshzxeKEtmdn'. (given: 'KQ')");
    runtime_refusal("notify-keyspace-events", "a",
                    "CONFIG SET failed (possibly related to argument 'notify-keyspace-events') - Invalid event class "
                    "character. Use 'Ag$lshzxeKEtmdn'.");
}

/* Classes that are not named keep their limits, in one text or one by one. */
Test(config, output_limits_by_class)
{
    accepts("client-output-buffer-limit", "pubsub 1mb 64kb 10",
            "normal 0 0 0 slave 268435456 67108864 60 pubsub 1048576 65536 10");
    accepts("client-output-buffer-limit", "normal 1 2 3  replica 4 5 6",
            "normal 1 2 3 slave 4 5 6 pubsub 1048576 65536 10");
    accepts("client-output-buffer-limit", "NORMAL 0 0 0 Slave 7 7 7 normal 9 9 9",
            "normal 9 9 9 slave 7 7 7 pubsub 1048576 65536 10");
    cr_assert_eq(cfg.clients.client_output_buffer_limit.classes[CONFIG_CLIENT_PUBSUB].hard, 1048576);
    static const char *const bad[][2] = {
        {"", "Wrong number of arguments in buffer limit configuration."},
        {"pubsub 1 2", "Wrong number of arguments in buffer limit configuration."},
        {"pubsub 1 2 3 4", "Invalid client class specified in buffer limit configuration."},
        {"everybody 1 2 3", "Invalid client class specified in buffer limit configuration."},
        {"pubsub 1 2 -3", "Error in hard, soft or soft_seconds setting in buffer limit configuration."},
        {"pubsub x 2 3", "Error in hard, soft or soft_seconds setting in buffer limit configuration."},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char expected[256];

        snprintf(expected, sizeof(expected),
                 "CONFIG SET failed (possibly related to argument 'client-output-buffer-limit') - %s", bad[i][1]);
        runtime_refusal("client-output-buffer-limit", bad[i][0], expected);
    }
    cr_assert_str_eq(get("client-output-buffer-limit"), "normal 9 9 9 slave 7 7 7 pubsub 1048576 65536 10");
}

/* Save rules are pairs; an empty value is no rule. */
Test(config, save_rules_are_pairs)
{
    const char *const bad[] = {
        "1", "1 2 3", "0 1", "1 -1", "x 1", "1 x", "1 1x", "2147483648 1", "1 18446744073709551616"};

    accepts("save", "900 1", "900 1");
    accepts("save", "  900\t1   60 10000 ", "900 1 60 10000");
    cr_assert_eq(cfg.data.save.items[1].changes, 10000);
    accepts("save", "2147483647 18446744073709551615", "2147483647 18446744073709551615");
    accepts("save", "1 0", "1 0");
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char expected[128];

        snprintf(expected, sizeof(expected), "'save': Invalid save parameters (given: '%s')", bad[i]);
        refuses("save", bad[i], expected);
        runtime_refusal("save", bad[i],
                        "CONFIG SET failed (possibly related to argument 'save') - Invalid save parameters");
    }
    accepts("save", "", "");
    cr_assert_eq(cfg.data.save.count, 0);
}

/* Addresses are numeric; at most as many as there are sockets for. */
Test(config, bind_takes_addresses)
{
    char many[256] = "";

    accepts("bind", "*", "*");
    accepts("bind", "::* -* 10.0.0.1  -fe80::1%eth0", "::* -* 10.0.0.1 -fe80::1%eth0");
    cr_assert_eq(cfg.network.bind.count, 4);
    accepts("bind", "", "");
    for (int i = 0; i < 16; i++)
        snprintf(many + strlen(many), sizeof(many) - strlen(many), "%s127.0.0.%d", i ? " " : "", i + 1);
    accepts("bind", many, many);
    strcat(many, " ::1");
    cr_assert_eq(set("bind", many, CONFIG_FILE), CONFIG_REFUSED);
    refuses("bind", "localhost",
            "'bind': argument must be at most 16 numeric IP addresses, * or ::* (given: 'localhost')");
    refuses("bind", "127.0.0.1 -",
            "'bind': argument must be at most 16 numeric IP addresses, * or ::* (given: '127.0.0.1 -')");
    refuses("bind", "fe80::1%",
            "'bind': argument must be at most 16 numeric IP addresses, * or ::* (given: 'fe80::1%')");
    refuses("bind", "127.0.0.1%lo",
            "'bind': argument must be at most 16 numeric IP addresses, * or ::* (given: '127.0.0.1%lo')");
    refuses("bind", "1.2.3.256",
            "'bind': argument must be at most 16 numeric IP addresses, * or ::* (given: '1.2.3.256')");
}

/* The mode of the Unix socket is octal in both directions. */
Test(config, socket_mode_is_octal)
{
    accepts("unixsocketperm", "700", "700");
    cr_assert_eq(cfg.network.unixsocketperm, 0700);
    accepts("unixsocketperm", "0770", "770");
    refuses("unixsocketperm", "780", "'unixsocketperm': argument couldn't be parsed as an octal number (given: '780')");
    refuses("unixsocketperm", "1000", "'unixsocketperm': argument must be between 0 and 777 inclusive (given: '1000')");
}

/* Strings are any bytes but NUL, and long ones too. */
Test(config, strings_hold_any_bytes_but_nul)
{
    static char longest[100001];

    accepts("requirepass", "a b\t\"'\xff", "a b\t\"'\xff");
    accepts("requirepass", "", "");
    memset(longest, 'x', sizeof(longest) - 1);
    cr_assert_eq(set("logfile", longest, CONFIG_FILE), CONFIG_OK);
    cr_assert_eq(strlen(cfg.process.logfile), 100000);
    cr_assert_eq(config_set(&cfg, slice_of("dir"), (struct slice){"a\0b", 3}, CONFIG_FILE, &err), CONFIG_REFUSED);
    cr_assert_str_eq(err.text, "'dir': argument must not contain a NUL byte");
    cr_assert_str_eq(cfg.data.dir, "./data");
    cr_assert_eq(config_set(&cfg, slice_of("requirepass"), (struct slice){NULL, 0}, CONFIG_RUNTIME, &err), CONFIG_OK);
    cr_assert_str_eq(cfg.network.requirepass.ptr, "");
}

/* With any limits of unauthenticated clients, the longest password can be sent. */
Test(config, a_password_is_never_longer_than_what_auth_may_send)
{
    char longest[CONFIG_MAX_SECRET + 2];
    const struct config_row *limit = config_find(slice_of("proto-max-bulk-len-unauthenticated"));
    cr_assert_geq(limit->min, CONFIG_MAX_SECRET);
    cr_assert_geq(config_find(slice_of("proto-max-bulk-len"))->min, CONFIG_MAX_SECRET);
    memset(longest, 'x', sizeof(longest));
    for (size_t len = CONFIG_MAX_SECRET - 1; len <= CONFIG_MAX_SECRET + 1; len++) {
        int expected = len <= CONFIG_MAX_SECRET ? CONFIG_OK : CONFIG_REFUSED;
        struct slice password = {longest, len};
        cr_assert_eq(config_set(&cfg, slice_of("requirepass"), password, CONFIG_RUNTIME, &err), expected, "%zu", len);
        cr_assert_eq(config_set(&cfg, slice_of("requirepass"), password, CONFIG_FILE, &err), expected, "%zu", len);
    }
    cr_assert_str_eq(err.text, "'requirepass': argument must have at most 1024 bytes");
    cr_assert_eq(strlen(cfg.network.requirepass.ptr), CONFIG_MAX_SECRET);
}

/* No message shows a password, not even a refused one. */
Test(config, a_secret_is_not_repeated)
{
    static const char *const names[] = {"requirepass", "tls-key-file-pass"};
    static const enum config_source sources[] = {CONFIG_FILE, CONFIG_RUNTIME};
    char secret[CONFIG_MAX_SECRET + 1];
    memset(secret, 'x', sizeof(secret));
    memcpy(secret, "sesame", 7); /* with a NUL, which only one of them may have; too long for both */
    for (int i = 0; i < 4; i++) {
        struct slice value = {secret, sizeof(secret)};
        cr_assert_eq(config_set(&cfg, slice_of(names[i / 2]), value, sources[i % 2], &err), CONFIG_REFUSED);
        cr_assert_null(strstr(err.text, "sesame"), "%s", err.text);
        value.len = 7;
        cr_assert_eq(config_set(&cfg, slice_of(names[i / 2]), value, sources[i % 2], &err),
                     i / 2 ? CONFIG_REFUSED : CONFIG_OK);
        cr_assert_null(strstr(err.text, "sesame"), "%s", err.text);
    }
}

/* Settings fixed at start are refused at run time with any value; the others are accepted. */
Test(config, start_only_settings_are_immutable_at_run_time)
{
    size_t n, fixed = 0;
    const struct config_row *rows = config_table(&n);

    for (size_t i = 0; i < n; i++) {
        char expected[256];

        if (rows[i].flags & CONFIG_START_ONLY) {
            fixed++;
            snprintf(expected, sizeof(expected),
                     "CONFIG SET failed (possibly related to argument '%s') - can't set immutable config",
                     rows[i].name);
            runtime_refusal(rows[i].name, rows[i].default_text, expected);
        } else {
            cr_assert_eq(set(rows[i].name, rows[i].default_text, CONFIG_RUNTIME), CONFIG_OK, "%s", err.text);
        }
    }
    cr_assert_geq(fixed, 8);
}

/* Unknown names: Redis's words at run time. */
Test(config, unknown_settings_are_refused)
{
    cr_assert_eq(set("nosuch", "1", CONFIG_RUNTIME), CONFIG_UNKNOWN);
    cr_assert_str_eq(err.text, "Unknown option or number of arguments for CONFIG SET - 'nosuch'");
    cr_assert_eq(set("prot", "1", CONFIG_FILE), CONFIG_UNKNOWN);
    cr_assert_str_eq(err.text, "unknown setting 'prot'");
    cr_assert_eq(set("max-clients", "1", CONFIG_FILE), CONFIG_UNKNOWN);
    cr_assert_str_eq(err.text, "unknown setting 'max-clients'");
    cr_assert_eq(set("bf-expansion", "1", CONFIG_FILE), CONFIG_UNKNOWN);
    cr_assert_eq(set("hash-max-listpack-entries", "1", CONFIG_FILE), CONFIG_UNKNOWN);
    cr_assert_str_eq(err.text, "unknown setting 'hash-max-listpack-entries'");
    cr_assert_eq(set("", "1", CONFIG_FILE), CONFIG_UNKNOWN);
    cr_assert_str_eq(err.text, "unknown setting ''");
    cr_assert_eq(set("THREADS", "3", CONFIG_FILE), CONFIG_OK);
    cr_assert_eq(cfg.process.threads, 3);
}

/* A clone has the same values; later changes on one side do not affect the other. */
Test(config, a_clone_is_independent)
{
    struct config copy;
    size_t n;
    const struct config_row *rows = config_table(&n);
    cr_assert_eq(set("requirepass", "one", CONFIG_FILE), CONFIG_OK);
    cr_assert_eq(set("save", "5 6", CONFIG_FILE), CONFIG_OK);
    cr_assert_eq(set("bind", "10.0.0.1", CONFIG_FILE), CONFIG_OK);
    cr_assert_eq(config_clone(&cfg, &copy), 0);
    for (size_t i = 0; i < n; i++) {
        char mine[1024];
        snprintf(mine, sizeof(mine), "%s", get(rows[i].name));
        cr_assert_str_eq(get_from(&copy, rows[i].name), mine);
    }
    cr_assert_eq(config_set(&copy, slice_of("requirepass"), slice_of("two"), CONFIG_FILE, &err), CONFIG_OK);
    cr_assert_eq(config_set(&copy, slice_of("save"), slice_of(""), CONFIG_FILE, &err), CONFIG_OK);
    cr_assert_eq(config_set(&copy, slice_of("bind"), slice_of("10.0.0.2 10.0.0.3"), CONFIG_FILE, &err), CONFIG_OK);
    cr_assert_str_eq(get("requirepass"), "one");
    cr_assert_str_eq(get("save"), "5 6");
    cr_assert_str_eq(get("bind"), "10.0.0.1");
    config_deinit(&cfg);
    cr_assert_str_eq(copy.network.requirepass.ptr, "two");
    cr_assert_str_eq(copy.network.bind.items[1], "10.0.0.3");
    config_deinit(&copy);
    config_deinit(&copy);
}

/* Settings that do not go together are refused as a whole. */
Test(config, contradictions_are_refused)
{
    cr_assert_eq(config_check(&cfg, CONFIG_FILE, &err), CONFIG_OK);
    cr_assert_eq(set("reply-buffer-limit", "1mb", CONFIG_FILE), CONFIG_OK);
    cr_assert_eq(config_check(&cfg, CONFIG_FILE, &err), CONFIG_OK, "equal is fine");
    cr_assert_eq(set("reply-buffer-high-water", "1048577", CONFIG_FILE), CONFIG_OK);
    cr_assert_eq(config_check(&cfg, CONFIG_FILE, &err), CONFIG_REFUSED);
    cr_assert_str_eq(err.text, "'reply-buffer-high-water': must not be above 'reply-buffer-limit'");
    cr_assert_eq(config_check(&cfg, CONFIG_RUNTIME, &err), CONFIG_REFUSED);
    cr_assert_str_eq(err.text,
                     "CONFIG SET failed (possibly related to argument 'reply-buffer-high-water') - must not be "
                     "above 'reply-buffer-limit'");
    cr_assert_eq(set("reply-buffer-high-water", "1kb", CONFIG_FILE), CONFIG_OK);
    cr_assert_eq(set("port", "0", CONFIG_FILE), CONFIG_OK);
    cr_assert_eq(config_check(&cfg, CONFIG_FILE, &err), CONFIG_REFUSED);
    cr_assert_str_eq(err.text,
                     "nothing to listen on: 'port' is 0 or 'bind' is empty, without 'tls-port' or 'unixsocket'");
    cr_assert_eq(set("unixsocket", "/tmp/s", CONFIG_FILE), CONFIG_OK);
    cr_assert_eq(config_check(&cfg, CONFIG_FILE, &err), CONFIG_OK);
}

/* Defaults that no new filter can have are refused when they are set, not at every add. */
Test(config, filter_defaults_must_make_a_filter)
{
    cr_assert_eq(set("bf-error-rate", "1e-300", CONFIG_FILE), CONFIG_OK);
    cr_assert_eq(config_check(&cfg, CONFIG_FILE, &err), CONFIG_REFUSED);
    cr_assert_eq(strncmp(err.text, "'bf-error-rate': cannot be had with bf-initial-size 100: ", 57), 0, "%s", err.text);
    cr_assert_eq(config_check(&cfg, CONFIG_RUNTIME, &err), CONFIG_REFUSED);
    cr_assert_not_null(strstr(err.text, "argument 'bf-error-rate'"), "%s", err.text);
    cr_assert_eq(set("bf-error-rate", "1e-7", CONFIG_FILE), CONFIG_OK);
    cr_assert_eq(config_check(&cfg, CONFIG_FILE, &err), CONFIG_OK, "%s", err.text);
}
