/* The check of rights in parts: it has the verdict of the whole check, and no part compares very much. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "acl_check.h"
#include "command.h"
#include "session.h"

#define NAMES    20000
#define PATTERNS 900

static struct acl_user *user_of(char words[][24], size_t n)
{
    struct acl_user *user = acl_user_create((struct slice){"bob", 3}, false);
    struct slice *slices = calloc(n, sizeof(*slices)), fault;
    struct buf scratch;
    cr_assert(user && slices);
    for (size_t i = 0; i < n; i++)
        slices[i] = (struct slice){words[i], strlen(words[i])};
    buf_init(&scratch, SIZE_MAX);
    cr_assert_eq(acl_user_apply_words(user, slices, n, false, &scratch, &fault), ACL_GOOD);
    buf_deinit(&scratch);
    free(slices);
    return user;
}

/* Calls until there is a verdict. */
static size_t calls_until(enum acl_verdict expected, const struct acl_user *user, const struct command *row,
                          const struct resp_command *words)
{
    struct session_rights progress = {0};
    enum acl_verdict verdict;
    size_t calls = 0, at = 0, whole_at = 0;
    do {
        verdict = acl_check_some(user, row, words, &progress, &at);
        calls++;
    } while (verdict == ACL_UNDECIDED);
    cr_expect_eq(verdict, expected);
    cr_expect_eq(acl_check(user, row, words, 0, &whole_at), expected);
    cr_expect_eq(at, whole_at);
    return calls;
}

Test(acl_parts, many_names_and_patterns)
{
    static char rules[PATTERNS + 3][24];
    static struct resp_span spans[NAMES + 1];
    char line[] = "EXISTS name-899:f forbidden";
    size_t least = (size_t)NAMES * PATTERNS / ACL_CHECK_SOME;
    strcpy(rules[0], "+exists");
    for (int i = 0; i < PATTERNS; i++)
        snprintf(rules[i + 1], sizeof(rules[0]), "~name-%d:*", i);
    struct acl_user *user = user_of(rules, PATTERNS + 1);
    const struct command *row = command_find_full((struct slice){"exists", 6});
    spans[0] = (struct resp_span){0, 6};
    for (int i = 1; i <= NAMES; i++)
        spans[i] = (struct resp_span){7, 10};
    struct resp_command words = {line, spans, NAMES + 1};
    cr_expect_geq(calls_until(ACL_ALLOWED, user, row, &words), least);
    spans[NAMES] = (struct resp_span){18, 9};
    cr_expect_geq(calls_until(ACL_DENIED_KEY, user, row, &words), least);
    spans[1] = spans[NAMES];
    cr_expect_eq(calls_until(ACL_DENIED_KEY, user, row, &words), 1);
    for (size_t i = ACL_CHECK_SOME / PATTERNS - 3; i < ACL_CHECK_SOME / PATTERNS + 3; i++) { /* where a part ends */
        for (size_t k = 1; k <= NAMES; k++)
            spans[k] = k == i ? (struct resp_span){18, 9} : (struct resp_span){7, 10};
        (void)calls_until(ACL_DENIED_KEY, user, row, &words);
    }
    acl_user_unref(user);

    /* A selector after the first one checks the names again. */
    strcpy(rules[PATTERNS + 1], "(+exists ~name-899:*)");
    strcpy(rules[PATTERNS], "~other:*");
    user = user_of(rules, PATTERNS + 2);
    for (int i = 1; i <= NAMES; i++)
        spans[i] = (struct resp_span){7, 10};
    cr_expect_leq(calls_until(ACL_ALLOWED, user, row, &words), 2);
    acl_user_unref(user);
}
