/* Parts of the end-to-end tests whose errors could go unnoticed: the reading of recordings and of the table of
 * intended differences, and the comparison. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compat.h"
#include "corpus.h"

static char path[64];

static void write_text(const char *text)
{
    int fd;

    snprintf(path, sizeof(path), "/tmp/bloomery-harness-XXXXXX");
    fd = mkstemp(path);
    cr_assert_geq(fd, 0);
    cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

/* Words are split and unescaped as by redis-cli. */
Test(corpus, words_are_split_as_redis_cli_does)
{
    struct word words[16];
    size_t n;
    char *bytes;

    cr_assert(corpus_split("  a \"b c\" 'd e' \"\\x00\\xfF\\r\\n\\\"\\\\\\q\" \"\" x\"y\"z ", words, 16, &n, &bytes));
    cr_assert_eq(n, 6);
    cr_assert_eq(words[0].len, 1);
    cr_assert_eq(memcmp(words[1].ptr, "b c", 3), 0);
    cr_assert_eq(memcmp(words[2].ptr, "d e", 3), 0);
    cr_assert_eq(words[3].len, 7);
    cr_assert_eq(memcmp(words[3].ptr, "\0\xff\r\n\"\\q", 7), 0);
    cr_assert_eq(words[4].len, 0);
    cr_assert_eq(memcmp(words[5].ptr, "xyz", 3), 0);
    free(bytes);
    cr_assert_not(corpus_split("a \"b", words, 16, &n, &bytes));
    free(bytes);
    cr_assert_not(corpus_split("a 'b", words, 16, &n, &bytes));
    free(bytes);
}

/* A recording is cases with their replies. */
Test(corpus, recordings_are_read_as_cases)
{
    struct corpus corpus;

    write_text("> PING\n< +PONG\n> @new\n> ECHO \"\"\n< $0\n< \n> @raw 0 \"*\"\n<! silence\n");
    corpus_load(&corpus, path);
    unlink(path);
    cr_assert_eq(corpus.count, 4);
    cr_assert_str_eq(corpus.cases[0].command, "PING");
    cr_assert_str_eq(corpus.cases[0].reply.items[0], "< +PONG");
    cr_assert_eq(corpus.cases[1].reply.count, 0);
    cr_assert_eq(corpus.cases[2].reply.count, 2);
    cr_assert_str_eq(corpus.cases[2].reply.items[1], "< ");
    cr_assert_str_eq(corpus.cases[3].reply.items[0], "<! silence");
    corpus_deinit(&corpus);
}

/* The table: only rows of the requested file, exact rows before prefixes, longer prefixes before shorter ones. */
Test(compat, rows_are_found_by_command)
{
    struct compat compat;

    write_text("# Title\n\n| files | command | reason |\n| --- | --- | --- |\n"
               "| 01 02 | `SET *` | not here |\n| 02 | `SET a b` | exactly |\n|02|`SET long *`|one number: longer|\n"
               "| 03 | `GET a` | another file |\n| word | `x` | another table |\n");
    compat_load(&compat, path, "02");
    unlink(path);
    cr_assert_eq(compat.count, 3);
    cr_assert_eq(compat_find(&compat, "SET a b"), &compat.rows[1]);
    cr_assert_eq(compat_find(&compat, "SET long x"), &compat.rows[2]);
    cr_assert_eq(compat_find(&compat, "SET x"), &compat.rows[0]);
    cr_assert_null(compat_find(&compat, "SET"));
    cr_assert_null(compat_find(&compat, "GET a"));
    cr_assert(compat.rows[2].kind == COMPAT_ONE_NUMBER && compat.rows[1].kind == COMPAT_ANY);
    cr_assert_eq(compat.rows[0].line, 5);
    compat_deinit(&compat);
}

static bool same_but_dumps(const char *recorded, const char *got)
{
    struct lines lines[2] = {{NULL, 0, 0}, {NULL, 0, 0}};
    const char *texts[] = {recorded, got};
    bool same;

    for (size_t i = 0; i < 2; i++)
        for (const char *line = texts[i], *end; *line != '\0'; line = end + 1) {
            end = strchrnul(line, '\n');
            lines_add(&lines[i], line, (size_t)(end - line));
            if (*end == '\0')
                break;
        }
    same = corpus_same_but_dumps(&lines[0], &lines[1]);
    lines_deinit(&lines[0]);
    lines_deinit(&lines[1]);
    return same;
}

/* Replies with dumps: only bytes, iterators and numbers of chunks may differ. */
Test(corpus_player, dumps_are_compared_by_their_form)
{
    const char *copy = "< *2\n< :1\n< $1\n< a\n< +OK\n< *2\n< :0\n< $0\n< ";
    const char *longer = "< *2\n< :7\n< $2\n< xx\n< +OK\n< *2\n< :8\n< $1\n< y\n< +OK\n< *2\n< :9\n< $1\n< z\n< +OK\n"
                         "< *2\n< :0\n< $0\n< ";

    cr_assert(same_but_dumps(copy, copy));
    cr_assert(same_but_dumps(copy, longer));
    cr_assert(same_but_dumps("< *2\n< :1\n< $1\n< a", "< *2\n< :-5\n< $3\n< abc"));
    cr_assert(!same_but_dumps(copy, "< *2\n< :0\n< $0\n< "));
    cr_assert(!same_but_dumps(copy, "< *2\n< :1\n< $1\n< a\n< +OK"));
    cr_assert(!same_but_dumps(copy, "< *2\n< :1\n< $1\n< a\n< -ERR bad\n< *2\n< :0\n< $0\n< "));
    cr_assert(!same_but_dumps("< *2\n< :1\n< $1\n< a", "< *2\n< :1\n< $0\n< "));
    cr_assert(!same_but_dumps("< *2\n< :1\n< $1\n< a", "< -ERR not found"));
    cr_assert(!same_but_dumps("< -ERR not found", "< -ERR bad"));
}
