/* The table: its rows are consistent, and can be found. */
#include <criterion/criterion.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "command.h"
#include "command_arg.h"
#include "harness.h"
#include "registry.h"
#include "stats.h"

static bool has_word(const char *words, const char *word)
{
    size_t len = strlen(word);

    for (const char *at = words; (at = strstr(at, word)) != NULL; at += len) {
        if ((at == words || at[-1] == ' ') && (at[len] == ' ' || at[len] == '\0'))
            return true;
    }
    return false;
}

static bool is_lower(const char *text)
{
    for (; *text != '\0'; text++) {
        if (*text >= 'A' && *text <= 'Z')
            return false;
    }
    return true;
}

/* Counters are arrays of STATS_MAX_COMMANDS, indexed by the row's number. */
Test(commands, every_row_has_a_number_of_its_own_within_the_counters)
{
    const struct command *row;
    size_t ntop, n = 0;

    command_table(&ntop);
    for (; (row = command_row(n)) != NULL; n++)
        cr_expect_eq(command_index(row), n, "%s", row->full_name);
    cr_expect_gt(n, ntop);
    cr_expect_leq(n, STATS_MAX_COMMANDS);
    cr_expect_null(command_row(n + 1));
    cr_expect_leq(ntop, 255, "command_find() keeps numbers in bytes");
}

Test(commands, names_are_lower_case_unique_and_found_in_any_case)
{
    const struct command *row, *other;
    char name[64];

    for (size_t i = 0; (row = command_row(i)) != NULL; i++) {
        cr_expect(is_lower(row->full_name), "%s", row->full_name);
        for (size_t j = 0; j < i; j++) {
            other = command_row(j);
            cr_expect_str_neq(row->full_name, other->full_name);
        }
    }
    size_t n;
    const struct command *table = command_table(&n);
    for (size_t i = 0; i < n; i++) {
        cr_expect_str_eq(table[i].name, table[i].full_name);
        cr_expect_eq(command_find(slice_of(table[i].name)), (int)i);
        for (size_t j = 0; j <= strlen(table[i].name); j++)
            name[j] = (char)(j % 2 == 0 && table[i].name[j] >= 'a' && table[i].name[j] <= 'z' ? table[i].name[j] - 32
                                                                                              : table[i].name[j]);
        cr_expect_eq(command_find(slice_of(name)), (int)i, "%s", name);
        for (size_t j = 0; j < table[i].nsubcommands; j++) {
            snprintf(name, sizeof(name), "%s|%s", table[i].name, table[i].subcommands[j].name);
            cr_expect_str_eq(table[i].subcommands[j].full_name, name);
            cr_expect_eq(command_find_sub(&table[i], slice_of(table[i].subcommands[j].name)), &table[i].subcommands[j]);
        }
    }
}

/* Near misses: other lengths, one byte changed to anything, NULs, nothing. */
Test(commands, nothing_else_is_found)
{
    size_t n;
    const struct command *table = command_table(&n);
    char name[64];

    cr_expect_eq(command_find((struct slice){NULL, 0}), -1);
    cr_expect_eq(command_find((struct slice){"ping\0", 5}), -1);
    cr_expect_eq(command_find((struct slice){"bf\x0e"
                                             "add",
                                             6}),
                 -1, "0x0e is '.' without the bit of lower case");
    cr_expect_null(command_find_sub(&table[command_find(slice_of("ping"))], slice_of("x")));
    cr_expect_null(command_find_sub(&table[command_find(slice_of("client"))], slice_of("client")));
    for (size_t i = 0; i < n; i++) {
        size_t len = strlen(table[i].name);

        cr_expect_neq(command_find((struct slice){table[i].name, len - 1}), (int)i);
        strcpy(name, table[i].name);
        for (size_t j = 0; j < len; j++) {
            for (int c = 0; c < 256; c++) {
                int found;

                name[j] = (char)c;
                found = command_find((struct slice){name, len});
                if (found == (int)i)
                    cr_assert_eq(name[j] | 32, table[i].name[j], "%s", name);
            }
            name[j] = table[i].name[j];
        }
    }
}

static size_t least_words(const struct command_arg *args, size_t nargs, bool *open_out)
{
    size_t n = 0;

    for (size_t i = 0; i < nargs; i++) {
        size_t words = args[i].token != NULL && strcmp(args[i].type, "pure-token") != 0 ? 2 : 1;

        *open_out |= args[i].multiple || args[i].optional || args[i].nargs > 0;
        if (strcmp(args[i].type, "block") == 0)
            words = (args[i].token != NULL) + least_words(args[i].args, args[i].nargs, open_out);
        else if (strcmp(args[i].type, "oneof") == 0 && strcmp(args[i].args[0].type, "pure-token") != 0 &&
                 (args[i].args[0].token != NULL || args[i].args[0].nargs > 0))
            words = 2; /* a word that chooses, and its value */
        if (!args[i].optional)
            n += words;
    }
    return n;
}

/* The arity equals the number of words of the documented arguments. */
Test(commands, arity_agrees_with_the_arguments)
{
    const struct command *row;

    for (size_t i = 0; (row = command_row(i)) != NULL; i++) {
        bool sub = strchr(row->full_name, '|') != NULL, open = false;
        size_t words = 1 + sub + least_words(row->args, row->nargs, &open);

        if (row->handler == NULL) {
            cr_expect_eq(row->arity, -2, "%s", row->full_name);
            cr_expect_gt(row->nsubcommands, 0, "%s", row->full_name);
            continue;
        }
        /* RedisBloom and Redis report two arities more loosely or more strictly than the arguments. CLIENT TRACKING
         * takes any words, to say that it is not supported. */
        if (strcmp(row->name, "bf.insert") == 0 || strcmp(row->name, "quit") == 0 ||
            strcmp(row->full_name, "client|tracking") == 0)
            continue;
        cr_expect_eq((size_t)abs(row->arity), words, "%s: arity %d, arguments come to %zu words", row->full_name,
                     row->arity, words);
        if (row->arity < 0)
            cr_expect(open || row->nsubcommands > 0, "%s", row->full_name);
    }
}

Test(commands, keys_and_flags_agree)
{
    const struct command *row;

    for (size_t i = 0; (row = command_row(i)) != NULL; i++) {
        cr_expect_eq(row->first_key != 0, row->key_flags != NULL, "%s", row->full_name);
        cr_expect_eq(row->first_key != 0, row->key_step != 0, "%s", row->full_name);
        if (row->flags & CMD_DENYOOM)
            cr_expect(row->flags & CMD_WRITE, "%s", row->full_name);
        cr_expect(row->summary != NULL && row->since != NULL, "%s", row->full_name);
    }
}

/* ---- reading arguments ---- */

/* All others wait for such a command even if it is alone in a transaction: only those may have the flag that change
 * what every command in progress looks at. */
Test(commands, only_swapdb_and_changes_of_users_make_a_transaction_of_one_command_wait_for_all_workers)
{
    const struct command *row;

    for (size_t i = 0; (row = command_row(i)) != NULL; i++) {
        bool alone = has_word("swapdb acl|setuser acl|deluser", row->full_name);
        cr_expect_eq((row->flags & CMD_ALONE) != 0, alone, "%s", row->full_name);
    }
}

/* Slow items make short slices at once, fast ones make long ones gradually; a few items change nothing. */
Test(commands, slices_are_as_long_as_items_are_fast)
{
    size_t slice = command_slice_items(COMMAND_SLICE, 1000, 10000000); /* 10 us each */
    cr_assert_eq(slice, COMMAND_SLICE_MIN);
    cr_assert_eq(command_slice_items(slice, COMMAND_SLICE_MIN - 1, 1), slice);
    cr_assert_eq(command_slice_items(slice, slice, 10000), 2 * slice);
    cr_assert_eq(command_slice_items(COMMAND_SLICE, COMMAND_SLICE, 100000), COMMAND_SLICE);
    cr_assert_eq(command_slice_items(COMMAND_SLICE, 500, 200000 - 1), 500);
    cr_assert_eq(command_slice_items(COMMAND_SLICE_MIN, 1000000, 0), 2 * COMMAND_SLICE_MIN);
}

/* A slice that takes too long ends at its handler's position; a command without slices continues. */
Test(commands, slices_end_when_their_time_is_over)
{
    struct command_slice slice = {0};
    struct command_ctx ctx = {.slice = &slice, .slice_end_ns = UINT64_MAX};
    cr_expect_not(command_slice_end(&ctx, 32));
    cr_expect(!ctx.later && slice.done == 0);
    ctx.slice_end_ns = 0;
    cr_expect(command_slice_end(&ctx, 64));
    cr_expect(ctx.later && slice.done == 64);
    cr_expect_not(command_slice_end(&(struct command_ctx){.slice_end_ns = 0}, 32));
}

Test(slice, integers_are_read_as_redis_reads_them)
{
    static const struct {
        const char *text;
        bool good;
        int64_t value;
    } cases[] = {
        {"0", true, 0},
        {"7", true, 7},
        {"-7", true, -7},
        {"9223372036854775807", true, INT64_MAX},
        {"-9223372036854775808", true, INT64_MIN},
        {"9223372036854775808", false, 0},
        {"-9223372036854775809", false, 0},
        {"18446744073709551616", false, 0},
        {"99999999999999999999999", false, 0},
        {"", false, 0},
        {"-", false, 0},
        {"-0", false, 0},
        {"00", false, 0},
        {"01", false, 0},
        {"-01", false, 0},
        {"+1", false, 0},
        {" 1", false, 0},
        {"1 ", false, 0},
        {"1.0", false, 0},
        {"1e3", false, 0},
        {"0x10", false, 0},
        {"--1", false, 0},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int64_t value = 4711;

        cr_expect_eq(slice_to_int64(slice_of(cases[i].text), &value), cases[i].good, "'%s'", cases[i].text);
        cr_expect_eq(value, cases[i].good ? cases[i].value : 4711, "'%s'", cases[i].text);
    }
    int64_t value;
    cr_expect_not(slice_to_int64((struct slice){"1\0", 2}, &value));
    cr_expect_not(slice_to_int64((struct slice){NULL, 0}, &value));
}

Test(slice, words_are_compared_whole_and_without_case)
{
    cr_expect(slice_is(slice_of("ON"), "on"));
    cr_expect(slice_is(slice_of("on"), "ON"));
    cr_expect(slice_is((struct slice){NULL, 0}, ""));
    cr_expect_not(slice_is(slice_of("o"), "on"));
    cr_expect_not(slice_is(slice_of("onx"), "on"));
    cr_expect_not(slice_is((struct slice){"on\0", 3}, "on"));
    cr_expect_not(slice_is((struct slice){"o\0", 2}, "o"));
    cr_expect_not(slice_is(slice_of("`"), "@"));
    cr_expect_not(slice_is((struct slice){"\xc1", 1}, "\xe1"), "bytes above ASCII have no case");
}

static const char *call(struct harness *h, const char *line)
{
    struct slice words[8];
    size_t n = 0;

    for (const char *at = line; *at; n++) {
        words[n] = (struct slice){at, strcspn(at, " ")};
        at += words[n].len + strspn(at + words[n].len, " ");
    }
    const char *reply = harness_run(h, words, n, NULL);
    cr_assert_neq(reply[0], '-', "%s: %s", line, reply);
    return reply;
}

/* For OBJECT IDLETIME: checks of a name are no use of a filter, and a client with CLIENT NO-TOUCH leaves none. */
Test(commands, uses_of_a_filter_are_noted)
{
    static const char *const looks[] = {"EXISTS f", "TYPE f", "TTL f", "OBJECT IDLETIME f", "DBSIZE", "KEYS *"};
    static const char *const uses[] = {"BF.EXISTS f x",   "BF.ADD f x",          "BF.ADD f y", "BF.MEXISTS f x z",
                                       "BF.MADD f x y z", "BF.INSERT f ITEMS x", "BF.CARD f",  "BF.INFO f"};
    struct harness h;

    harness_init(&h);
    call(&h, "BF.ADD f x");
    struct entry *entry = registry_lookup(h.server->registry, slice_of("f"));
    uint16_t before = atomic_load(&entry->used), stamp = (uint16_t)(before + 1000);
    atomic_store(&h.server->memory.use_stamp, stamp);
    for (size_t i = 0; i < sizeof(looks) / sizeof(looks[0]); i++) {
        call(&h, looks[i]);
        cr_expect_eq(atomic_load(&entry->used), before, "%s", looks[i]);
    }
    for (size_t i = 0; i < sizeof(uses) / sizeof(uses[0]); i++, before = stamp++) {
        atomic_store(&h.server->memory.use_stamp, stamp);
        atomic_fetch_or(&h.session.flags, SESSION_NO_TOUCH);
        call(&h, uses[i]);
        cr_expect_eq(atomic_load(&entry->used), before, "NO-TOUCH and %s", uses[i]);
        atomic_fetch_and(&h.session.flags, ~(unsigned)SESSION_NO_TOUCH);
        call(&h, uses[i]);
        cr_expect_eq(atomic_load(&entry->used), stamp, "%s", uses[i]);
    }
    harness_deinit(&h);
}

/* ---- a filter that expires within a command ---- */

static struct {
    int64_t due_ms;
    unsigned looks, due_at; /* from the look of this number on it is due */
} stepped;

static int64_t stepped_clock(void)
{
    return stepped.looks++ < stepped.due_at ? stepped.due_ms - 1000 : stepped.due_ms;
}

/* The copy expires, too, if there is one; also when the source expires between two looks of COPY at the clock. */
Test(commands, a_copy_of_a_filter_that_expires_meanwhile_does_not_outlive_it)
{
    char line[64];
    unsigned copies = 0, looks = 8;
    struct harness h;
    harness_init(&h);
    stepped.due_ms = clock_unix_ms() + 1000000;
    snprintf(line, sizeof(line), "PEXPIREAT from %lld", (long long)stepped.due_ms);
    registry_set_clock(h.server->registry, stepped_clock);
    for (unsigned i = 0; i < looks; i++) {
        stepped.looks = 0;
        stepped.due_at = UINT_MAX;
        call(&h, "BF.ADD from x");
        call(&h, line);
        stepped.looks = 0;
        stepped.due_at = i;
        copies += strcmp(call(&h, "COPY from to"), ":1\r\n") == 0;
        stepped.due_at = 0;
        cr_expect_str_eq(call(&h, "EXISTS from to"), ":0\r\n", "due from look %u on", i);
        call(&h, "DEL from to");
    }
    cr_expect(copies > 0 && copies < looks, "%u copies", copies);
    harness_deinit(&h);
}
