/* Which words of commands are hidden from others. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "command.h"
#include "command_arg.h"
#include "secrets.h"

#define WORDS 64

struct line {
    char text[512];
    struct resp_span spans[WORDS];
    struct resp_command command;
};

/* Words between single spaces; none is empty but "". */
static const struct resp_command *cut(struct line *line, const char *text)
{
    size_t n = 0;
    snprintf(line->text, sizeof(line->text), "%s", text);
    for (char *at = line->text; at; n++) {
        char *space = strchr(at, ' ');
        size_t len = space ? (size_t)(space - at) : strlen(at);
        cr_assert_lt(n, WORDS);
        line->spans[n] = (struct resp_span){(uint32_t)(at - line->text), len == 2 && at[0] == '"' ? 0 : (uint32_t)len};
        at = space ? space + 1 : NULL;
    }
    line->command = (struct resp_command){.base = line->text, .spans = line->spans, .argc = n};
    return &line->command;
}

/* The command as others see it: "x" for a hidden word. */
static const char *shown(const char *text)
{
    static char out[512];
    struct line line;
    struct secrets secrets;
    const struct resp_command *words = cut(&line, text);
    secrets_begin(&secrets, command_find_called(words, 0), words);
    out[0] = '\0';
    for (size_t i = 0; i < words->argc; i++) {
        struct slice word = secrets_word(&secrets, i);
        size_t used = strlen(out);
        bool hidden = word.len == 10 && memcmp(word.ptr, "(redacted)", 10) == 0;
        snprintf(out + used, sizeof(out) - used, "%s%.*s", i ? " " : "", hidden ? 1 : (int)word.len,
                 hidden ? "x" : word.ptr);
    }
    return out;
}

#define expect_shown(text, expected)                                                                \
    do {                                                                                            \
        const char *got = shown(text);                                                              \
        cr_expect_str_eq(got, expected, "'%s' is shown as '%s', not as '%s'", text, got, expected); \
    } while (0)

Test(secrets, auth_and_hello)
{
    expect_shown("AUTH pw", "AUTH x");
    expect_shown("auth user pw", "auth x x");
    expect_shown("AUTH user my pw", "AUTH x x x");
    expect_shown("HELLO", "HELLO");
    expect_shown("HELLO 3 AUTH user pw SETNAME n", "HELLO 3 AUTH x x x x");
    expect_shown("hello 3 setname n auth user pw", "hello 3 x x x x x");
    expect_shown("HELLO 3 AUTH SETNAME pw SETNAME n", "HELLO 3 AUTH x x x x");
    expect_shown("HELLO AUTH user pw", "HELLO AUTH x x");
    expect_shown("HELLO 3 AUTH pw", "HELLO 3 AUTH x");
    expect_shown("HELLO 3 AUTH user my pw SETNAME n", "HELLO 3 AUTH x x x x x");
    expect_shown("HELLO 3 SETNAME auth AUTH u pw", "HELLO 3 x x x x x");
}

/* A mistyped option may have a password after it. */
Test(secrets, hello_shows_its_version_only)
{
    expect_shown("HELLO 3 AUTHX inf SECRET", "HELLO 3 x x x");
    expect_shown("HELLO 3 AUHT inf SECRET SETNAME n", "HELLO 3 x x x x x");
    expect_shown("HELLO 3 SETNAME n AUHT inf SECRET", "HELLO 3 x x x x x");
    expect_shown("HELLO 3 SETNAME my name AUTH u pw", "HELLO 3 x x x x x x");
    expect_shown("HELLO inf SECRET", "HELLO inf x");
    expect_shown("HELLO 3 SECRET AUTH u pw", "HELLO 3 x x x x");
    expect_shown("ACL DRYRUN u HELLO 3 AUTHX inf SECRET", "ACL DRYRUN u HELLO 3 x x x");
}

Test(secrets, users)
{
    expect_shown("ACL SETUSER alice on >pw #hash <pw", "ACL SETUSER x x x x x");
    expect_shown("acl setuser alice", "acl setuser x");
    expect_shown("ACL GETUSER alice", "ACL GETUSER alice");
    expect_shown("ACL DELUSER alice bob", "ACL DELUSER alice bob");
}

Test(secrets, settings)
{
    expect_shown("CONFIG SET maxclients 1 RequirePass pw", "CONFIG SET maxclients 1 RequirePass x");
    expect_shown("config set requirepass pw timeout 1", "config set requirepass x timeout 1");
    expect_shown("CONFIG SET tls-key-file-pass pw timeout 1", "CONFIG SET tls-key-file-pass x timeout 1");
    expect_shown("CONFIG SET user pw", "CONFIG SET user x");
    expect_shown("CONFIG GET requirepass pw", "CONFIG GET requirepass pw");
    /* Another server's setting; a password with a space; a missing word. */
    expect_shown("CONFIG SET masterauth pw", "CONFIG SET masterauth x");
    expect_shown("CONFIG SET timeout 1 masterauth pw", "CONFIG SET timeout 1 x x");
    expect_shown("CONFIG SET requirepass my pw", "CONFIG SET requirepass x x");
    expect_shown("CONFIG SET requirepass my long pw", "CONFIG SET requirepass x x x");
    expect_shown("CONFIG SET requirepass timeout timeout 1", "CONFIG SET requirepass x timeout 1");
    expect_shown("CONFIG SET maxclients requirepass pw", "CONFIG SET maxclients requirepass x");
}

Test(secrets, commands_in_commands)
{
    expect_shown("ACL DRYRUN auth AUTH pw", "ACL DRYRUN auth AUTH x");
    expect_shown("ACL DRYRUN AUTH HELLO 3", "ACL DRYRUN AUTH HELLO 3");
    expect_shown("ACL DRYRUN u HELLO 3 AUTH u pw", "ACL DRYRUN u HELLO 3 AUTH x x");
    expect_shown("ACL DRYRUN u CONFIG SET timeout 1 requirepass pw", "ACL DRYRUN u CONFIG SET timeout 1 requirepass x");
    expect_shown("ACL DRYRUN u ACL SETUSER v >pw", "ACL DRYRUN u ACL SETUSER x x");
    expect_shown("ACL DRYRUN u ACL DRYRUN v AUTH pw", "ACL DRYRUN u ACL DRYRUN v AUTH x");
    expect_shown("ACL DRYRUN u BF.ADD f AUTH", "ACL DRYRUN u BF.ADD f AUTH");
    expect_shown("ACL DRYRUN u AUHT pw", "ACL DRYRUN u AUHT x");
    expect_shown("ACL DRYRUN u", "ACL DRYRUN u");
    expect_shown("COMMAND GETKEYS HELLO 3 AUTH u pw", "COMMAND GETKEYS HELLO 3 AUTH x x");
    expect_shown("command getkeysandflags auth pw", "command getkeysandflags auth x");
}

Test(secrets, other_commands_have_none)
{
    expect_shown("BF.ADD AUTH AUTH", "BF.ADD AUTH AUTH");
    expect_shown("PUBLISH AUTH requirepass", "PUBLISH AUTH requirepass");
    expect_shown("NOSUCH AUTH pw", "NOSUCH AUTH pw");
}

static bool takes_password(const struct command_arg *args, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strstr(args[i].name, "password") || strcmp(args[i].name, "auth") == 0 ||
            takes_password(args[i].args, args[i].nargs))
            return true;
    return false;
}

/* A new command with a password in its documentation must be marked accordingly. */
Test(secrets, each_command_with_a_password_has_some)
{
    const struct command *row;
    size_t n = 0;
    for (size_t i = 0; (row = command_row(i)) != NULL; i++) {
        if (!takes_password(row->args, row->nargs))
            continue;
        cr_expect_neq(row->secrets, SECRETS_NONE, "%s", row->full_name);
        n++;
    }
    cr_expect_geq(n, 2, "AUTH and HELLO, at least");
}
