#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "errbuf.h"

Test(errbuf, prefixes_are_put_in_front_of_the_message)
{
    struct errbuf err = {""};

    errbuf_set(&err, "short file (%d bytes)", 7);
    errbuf_prefix(&err, "layer %d", 0);
    errbuf_prefix(&err, "load filter '%s'", "urls");
    cr_assert_str_eq(err.text, "load filter 'urls': layer 0: short file (7 bytes)");
    errbuf_set(&err, "another");
    cr_assert_str_eq(err.text, "another");
}

Test(errbuf, null_is_a_caller_who_does_not_want_the_text)
{
    errbuf_set(NULL, "x%d", 1);
    errbuf_prefix(NULL, "y");
}

Test(errbuf, its_own_text_may_be_an_argument)
{
    struct errbuf err = {"inner"};

    errbuf_set(&err, "outer (%s)", err.text);
    cr_assert_str_eq(err.text, "outer (inner)");
}

/* Bytes of file names and clients must not reach a terminal or a log unescaped. */
Test(errbuf, bytes_that_are_not_printable_ascii_are_escaped)
{
    struct errbuf err = {""};
    char all[256];
    size_t n = 0;

    for (int c = 1; c < 256; c++)
        all[n++] = (char)c;
    all[n] = '\0';
    errbuf_set(&err, "%s", "a\n\x1b[31m\x7f\xc3\xa9~ ");
    cr_assert_str_eq(err.text, "a\\x0a\\x1b[31m\\x7f\\xc3\\xa9~ ");
    errbuf_prefix(&err, "\t");
    cr_assert_str_eq(err.text, "\\x09: a\\x0a\\x1b[31m\\x7f\\xc3\\xa9~ ");
    errbuf_set(&err, "%s", all);
    for (const char *p = err.text; *p; p++)
        cr_assert(*p >= 0x20 && *p <= 0x7e);
}

/* One byte below the size, at it, and above it. */
Test(errbuf, a_message_that_does_not_fit_is_cut_and_says_so)
{
    char text[ERRBUF_SIZE + 2];

    for (size_t len = ERRBUF_SIZE - 2; len <= ERRBUF_SIZE + 1; len++) {
        struct errbuf err;
        bool fits = len <= ERRBUF_SIZE - 1;

        memset(text, 'a', len);
        text[len] = '\0';
        memset(&err, 'x', sizeof(err));
        errbuf_set(&err, "%s", text);
        cr_assert_eq(strlen(err.text), fits ? len : ERRBUF_SIZE - 1);
        cr_assert_eq(strcmp(err.text + strlen(err.text) - 3, "...") == 0, !fits);

        snprintf(err.text, sizeof(err.text), "%.*s", (int)(len - 3), text);
        errbuf_prefix(&err, "p");
        cr_assert_eq(strncmp(err.text, "p: a", 4), 0);
        cr_assert_eq(strcmp(err.text + strlen(err.text) - 3, "...") == 0, !fits, "prefix, %zu bytes", len);
    }
}

Test(errbuf, a_message_of_escapes_is_cut_within_its_size)
{
    struct errbuf err;
    char text[ERRBUF_SIZE];

    memset(text, 1, sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    errbuf_set(&err, "%s", text);
    cr_assert_leq(strlen(err.text), ERRBUF_SIZE - 1);
    cr_assert_str_eq(err.text + strlen(err.text) - 7, "\\x01...");
}
