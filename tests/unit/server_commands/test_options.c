/* The options of BF.*: COMMAND DOCS names exactly those that the handlers accept. redis-cli's help and completion come
 * from it. */
#include <criterion/criterion.h>
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "command_arg.h"
#include "harness.h"

#define MAX_TRIES 4

/* Lines that try a word as an option of a command: '?' represents the word. One of them must be accepted if it is an
 * option; a reply with `unknown` in it means that it is none. */
static const struct probe {
    const char *command, *unknown;
    const char *tries[MAX_TRIES];
} probes[] = {
    {"bf.reserve", "unknown option", {"BF.RESERVE new 0.01 100 ?", "BF.RESERVE new 0.01 100 ? 5"}},
    {"bf.plan", "unknown option", {"BF.PLAN 0.01 100 ?", "BF.PLAN 0.01 100 ? 5"}},
    {"bf.insert", "Unknown argument", {"BF.INSERT f ? ITEMS a", "BF.INSERT f ? 5 ITEMS a", "BF.INSERT f ? a"}},
    {"bf.info", "Invalid information", {"BF.INFO f ?", "BF.INFO v ?"}},
    {"bf.import", "unknown option", {"BF.IMPORT new file ?", "BF.IMPORT new file ? 5"}},
    {"bf.reserve", "LAYOUT takes", {"BF.RESERVE new 0.01 100 LAYOUT ?"}},
    {"bf.reserve", "WINDOW takes", {"BF.RESERVE new 0.01 100 WINDOW ? 5"}},
    {"bf.plan", "LAYOUT takes", {"BF.PLAN 0.01 100 LAYOUT ?"}},
    {"bf.insert", "Bad layout", {"BF.INSERT f LAYOUT ? ITEMS a"}},
    {"bf.find", "not found", {"BF.FIND ? f ITEMS a"}},
    {"bf.find", "syntax error", {"BF.FIND f ? a"}},
    {"bf.query", "syntax error", {"BF.QUERY f ? ERROR ITEMS a", "BF.QUERY f ? a"}},
    {"bf.query", "MISSING takes", {"BF.QUERY f MISSING ? ITEMS a"}},
};

#define PROBES (sizeof(probes) / sizeof(probes[0]))

static const char *const sources[] = {"bf/bf_request.c", "bf/bf_valkey.c", "server/commands/filters/cmd_bf_info.c"};

/* ---- words: commands take them in any case ---- */

struct words {
    char text[256][32];
    size_t n;
};

static void add_word(struct words *words, const char *text, size_t len)
{
    if (len < 2 || len >= sizeof(words->text[0]))
        return;
    for (size_t i = 0; i < words->n; i++) {
        if (strlen(words->text[i]) == len && strncasecmp(words->text[i], text, len) == 0)
            return;
    }
    cr_assert_lt(words->n, sizeof(words->text) / sizeof(words->text[0]));
    memcpy(words->text[words->n], text, len);
    words->text[words->n++][len] = '\0';
}

/* Adds the string literals of capitals only. */
static void add_source_words(struct words *words, const char *source)
{
    char path[1024], *line = NULL;
    size_t size = 0;
    snprintf(path, sizeof(path), "%s/%s", BLOOMERY_SOURCE_DIR, source);
    FILE *file = fopen(path, "r");
    cr_assert_not_null(file, "%s: %s", path, strerror(errno));
    while (getline(&line, &size, file) > 0) {
        for (const char *at = line; (at = strchr(at, '"'));) {
            const char *end = ++at;
            while (isupper((unsigned char)*end))
                end++;
            if (*end == '"')
                add_word(words, at, (size_t)(end - at));
        }
    }
    free(line);
    fclose(file);
}

/* Adds the words in the documentation of a row. */
static void add_doc_words(struct words *words, const struct command_arg *args, size_t nargs)
{
    for (size_t i = 0; i < nargs; i++) {
        if (args[i].token)
            add_word(words, args[i].token, strlen(args[i].token));
        add_doc_words(words, args[i].args, args[i].nargs);
    }
}

/* In any case, like options. */
static bool has_word(const struct words *words, const char *text)
{
    for (size_t i = 0; i < words->n; i++) {
        if (strcasecmp(words->text[i], text) == 0)
            return true;
    }
    return false;
}

/* ---- trying ---- */

static bool takes(struct harness *h, const struct probe *probe, const char *word)
{
    for (size_t i = 0; i < MAX_TRIES && probe->tries[i]; i++) {
        struct slice argv[8];
        char line[128], *rest = line;
        size_t argc = 0;
        snprintf(line, sizeof(line), "%s", probe->tries[i]);
        for (char *arg; (arg = strsep(&rest, " "));)
            argv[argc++] = strcmp(arg, "?") == 0 ? slice_of(word) : slice_of(arg);
        if (!strstr(harness_run(h, argv, argc, NULL), probe->unknown))
            return true;
    }
    return false;
}

/* Returns whether the handler accepts the word as an option at any of the places where the row has options. */
static bool row_takes(struct harness *h, const struct command *row, const char *word)
{
    for (size_t i = 0; i < PROBES; i++) {
        if (strcmp(probes[i].command, row->full_name) == 0 && takes(h, &probes[i], word))
            return true;
    }
    return false;
}

Test(options, command_docs_names_every_option_of_every_bf_command)
{
    struct harness h;
    struct words all = {.n = 0};
    const struct command *row;
    harness_init(&h);
    harness_call(&h, NULL, "BF.RESERVE", "f", "0.01", "100", NULL);
    harness_call(&h, NULL, "BF.RESERVE", "v", "0.01", "100", "LAYOUT", "valkey", NULL);
    for (size_t i = 0; i < sizeof(sources) / sizeof(sources[0]); i++)
        add_source_words(&all, sources[i]);
    for (size_t i = 0; (row = command_row(i)); i++) {
        if (row->flags & CMD_MODULE && !(row->flags & CMD_CUCKOO))
            add_doc_words(&all, row->args, row->nargs);
    }
    cr_assert_gt(all.n, 20, "%zu words", all.n);
    for (size_t i = 0; (row = command_row(i)); i++) {
        struct words documented = {.n = 0};
        if (!(row->flags & CMD_MODULE) || row->flags & CMD_CUCKOO) /* CF.* pass over unknown words, as in RedisBloom */
            continue;
        add_doc_words(&documented, row->args, row->nargs);
        for (size_t w = 0; w < all.n; w++) {
            /* The file of an SSTable's filter; there is none here: e2e_sstables tests it. */
            bool taken = row_takes(&h, row, all.text[w]) ||
                         (strcmp(row->full_name, "bf.info") == 0 && strcmp(all.text[w], "FILE") == 0);
            cr_expect_eq(taken, has_word(&documented, all.text[w]), "%s %s: %s", row->full_name, all.text[w],
                         taken ? "taken, but not in COMMAND DOCS" : "in COMMAND DOCS, but not taken");
        }
    }
    harness_deinit(&h);
}
