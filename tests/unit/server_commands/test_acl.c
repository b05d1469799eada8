/* Users: their rules, their rights, and their texts, written and read. tests/clients/acl_server.py compares texts and
 * rights with those of Redis. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "acl.h"
#include "config.h"
#include "rng.h"

/* Words with spaces between, "-" for an empty one; at most 64. */
static size_t split(const char *text, struct slice words[64])
{
    size_t n = 0;
    while (*(text += strspn(text, " "))) {
        cr_assert_lt(n, 64);
        words[n].ptr = text;
        words[n].len = strcspn(text, " ");
        text += words[n].len;
        if (words[n].len == 1 && words[n].ptr[0] == '-')
            words[n].len = 0;
        n++;
    }
    return n;
}

static int apply(struct acl_user *user, const char *rules, struct slice *fault_out)
{
    struct slice words[64];
    struct buf scratch;
    buf_init(&scratch, SIZE_MAX);
    int status = acl_user_apply_words(user, words, split(rules, words), false, &scratch, fault_out);
    buf_deinit(&scratch);
    return status;
}

static struct acl_user *user_with(const char *rules)
{
    struct slice fault = {"", 0};
    struct acl_user *user = acl_user_create(slice_of("bob"), false);
    cr_assert_eq(apply(user, rules, &fault), ACL_GOOD, "%s: %.*s", rules, (int)fault.len, fault.ptr);
    return user;
}

static char *described(const struct acl_user *user)
{
    struct buf text;
    buf_init(&text, SIZE_MAX);
    acl_user_describe(user, ACL_STORED, &text);
    buf_append(&text, "", 1);
    cr_assert(!buf_failed(&text));
    char *copy = strdup(buf_head(&text));
    buf_deinit(&text);
    return copy;
}

/* Vectors of FIPS 180-4 and, at the borders of the padding, of coreutils' sha256sum. */
Test(acl, digests_have_known_answers)
{
    static const struct {
        size_t len; /* of 'a's; 0 with a text: the text */
        const char *text, *hex;
    } cases[] = {
        {0, "", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {0, "abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {0, "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
        {55, NULL, "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318"},
        {56, NULL, "b35439a4ac6f0948b6d6f9e3c6af0f5f590ce20f1bde7090ef7970686ec6738a"},
        {63, NULL, "7d3e74a05d7db15bce4ad9ec0658ea98e3f06eeecf16b4c6fff2da457ddc2f34"},
        {64, NULL, "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb"},
        {1000000, NULL, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        size_t len = cases[i].text ? strlen(cases[i].text) : cases[i].len;
        char *data = malloc(len + 1), hex[2 * ACL_DIGEST + 1];
        uint8_t digest[ACL_DIGEST];

        memset(data, 'a', len);
        if (cases[i].text && len > 0)
            memcpy(data, cases[i].text, len);
        acl_password_digest((struct slice){data, len}, digest);
        for (size_t j = 0; j < ACL_DIGEST; j++)
            snprintf(hex + 2 * j, 3, "%02x", digest[j]);
        cr_expect_str_eq(hex, cases[i].hex, "case %zu", i);
        free(data);
    }
}

/* Each row: rules, and the text of their user in LIST. */
Test(acl, rules_are_written_as_they_are_meant)
{
    static const char *const cases[][2] = {
        {"", "off resetchannels -@all"},
        {"on nopass", "on nopass resetchannels -@all"},
        {"nopass >a resetpass", "off resetchannels -@all"},
        {"ON AllKeys ALLCHANNELS AllCommands", "on ~* &* +@all"},
        {"+BF.ADD +@Read -bf.info", "off resetchannels -@all +bf.add +@read -bf.info"},
        {"+bf.add -bf.add +bf.add", "off resetchannels -@all +bf.add"},
        {"+config|get +config", "off resetchannels -@all +config"},
        {"+config -config|set", "off resetchannels -@all +config -config|set"},
        {"+@all -config -@all +ping", "off resetchannels -@all +ping"},
        {"+select|0 +select|1 -select", "off resetchannels -@all -select"},
        {"+select|0 +@connection", "off resetchannels -@all +@connection"},
        {"~a* %R~b* %W~c %RW~d ~a*", "off ~a* %R~b* %W~c ~d resetchannels -@all"},
        {"%R~* %W~*", "off %RW~* resetchannels -@all"},
        {"%R~a %W~a", "off ~a resetchannels -@all"},
        {"&a &b* &a", "off resetchannels &a &b* -@all"},
        {"(~a +bf.add) (%R~b", NULL},
        {"( ~a +bf.add ) (%R~b &c +@all)",
         "off resetchannels -@all (~a resetchannels -@all +bf.add) (%R~b resetchannels &c +@all)"},
        {"(~a) clearselectors", "off resetchannels -@all"},
        {"on nopass ~* &* +@all (~a) reset", "off sanitize-payload resetchannels -@all"},
        {"skip-sanitize-payload sanitize-payload skip-sanitize-payload",
         "off skip-sanitize-payload resetchannels -@all"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct slice fault;
        struct acl_user *user = acl_user_create(slice_of("bob"), false);
        int status = apply(user, cases[i][0], &fault);
        cr_expect_eq(status, cases[i][1] ? ACL_GOOD : -1, "%s", cases[i][0]);
        char *text = described(user);
        if (cases[i][1])
            cr_expect_str_eq(text, cases[i][1], "%s: %s", cases[i][0], text);
        free(text);
        acl_user_unref(user);
    }
}

/* The error names the fault, and the rule at fault. */
Test(acl, faults_are_those_of_the_rule)
{
    static const struct {
        const char *rules;
        int status;
        const char *rule;
    } cases[] = {
        {"on +nosuch", ACL_FAULT_UNKNOWN, "+nosuch"},
        {"+@nosuch", ACL_FAULT_UNKNOWN, "+@nosuch"},
        {"+", ACL_FAULT_UNKNOWN, "+"},
        {"-config|nosuch", ACL_FAULT_UNKNOWN, "-config|nosuch"},
        {"-select|0", ACL_FAULT_UNKNOWN, "-select|0"},
        {"+config|get|x", ACL_FAULT_FIRST_ARG, "+config|get|x"},
        {"+config|", ACL_FAULT_SYNTAX, "+config|"},
        {"+select|", ACL_FAULT_SYNTAX, "+select|"},
        {"%~a", ACL_FAULT_SYNTAX, "%~a"},
        {"%RR~a", ACL_FAULT_SYNTAX, "%RR~a"},
        {"%X~a", ACL_FAULT_SYNTAX, "%X~a"},
        {"%", ACL_FAULT_SYNTAX, "%"},
        {"what", ACL_FAULT_SYNTAX, "what"},
        {"~* ~a", ACL_FAULT_ALL_KEYS, "~a"},
        {"&* &a", ACL_FAULT_ALL_CHANNELS, "&a"},
        {"<a", ACL_FAULT_NO_PASSWORD, "<a"},
        {"#abc", ACL_FAULT_HASH, "#abc"},
        {"!ABC", ACL_FAULT_HASH, "!ABC"},
        {"(on)", ACL_FAULT_SYNTAX, "(on)"},
        {"(~a (+get))", ACL_FAULT_SYNTAX, "(~a (+get))"},
        {"on (~a", -1, "(~a"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct acl_user *user = acl_user_create(slice_of("bob"), false);
        struct slice words[64], fault = {"", 0};
        struct buf scratch;
        buf_init(&scratch, SIZE_MAX);
        int status = acl_user_apply_words(user, words, split(cases[i].rules, words), false, &scratch, &fault);
        cr_expect_eq(status, cases[i].status, "%s: %d", cases[i].rules, status);
        cr_expect(fault.len == strlen(cases[i].rule) && memcmp(fault.ptr, cases[i].rule, fault.len) == 0, "%s: '%.*s'",
                  cases[i].rules, (int)fault.len, fault.ptr);
        buf_deinit(&scratch);
        acl_user_unref(user);
    }
}

/* A user has a bounded number of rules, given in any way: each command may be compared with all of them. */
Test(acl, rules_are_bounded)
{
    static const struct {
        const char *before, *behind;
        size_t counts; /* number of rules */
    } kinds[] = {{"~k", "*", 1}, {"&c", "", 1}, {"+select|", "", 1}, {"(~k", ")", 2}};
    for (size_t kind = 0; kind < sizeof(kinds) / sizeof(kinds[0]); kind++) {
        struct acl_user *user = acl_user_create(slice_of("bob"), false);
        struct slice fault;
        for (size_t i = 0; i < (size_t)ACL_MAX_RULES / kinds[kind].counts; i++) {
            char word[64];
            snprintf(word, sizeof(word), "%s%zu%s", kinds[kind].before, i, kinds[kind].behind);
            cr_assert_eq(apply(user, word, &fault), ACL_GOOD, "%s", word);
        }
        cr_expect_eq(apply(user, "~one-more", &fault), ACL_FAULT_MANY, "%s", kinds[kind].before);
        acl_user_unref(user);
    }
}

/* Likewise the words of a selector, which may be one argument of megabytes. */
Test(acl, words_of_a_selector_are_bounded)
{
    static char text[(ACL_MAX_RULES + 1) * 3 + 2] = "(";
    struct acl_user *user = acl_user_create(slice_of("bob"), false);
    struct slice word = {text, sizeof(text)}, fault;
    struct buf scratch;
    buf_init(&scratch, SIZE_MAX);
    for (size_t i = 1; i < sizeof(text); i++)
        text[i] = "~a "[(i - 1) % 3];
    text[sizeof(text) - 1] = ')';
    cr_expect_eq(acl_user_apply_words(user, &word, 1, false, &scratch, &fault), ACL_FAULT_MANY);
    buf_deinit(&scratch);
    acl_user_unref(user);
}

/* ---- rights ---- */

static enum acl_verdict check(const struct acl_user *user, const char *command, size_t *at_out)
{
    struct slice words[64];
    struct resp_span spans[64];
    struct resp_command args = {.base = command, .spans = spans, .argc = split(command, words)};
    for (size_t i = 0; i < args.argc; i++)
        spans[i] = (struct resp_span){(uint32_t)(words[i].ptr - command), (uint32_t)words[i].len};
    const struct command *row = command_find_called(&args, 0);
    cr_assert_not_null(row, "%s", command);
    cr_assert(command_arity_fits(row, args.argc), "%s", command);
    *at_out = 0;
    return acl_check(user, row, &args, 0, at_out);
}

/* The rights of a user with these rules; `at`: the refused word. */
static const struct check_case {
    const char *rules, *command;
    enum acl_verdict verdict;
    size_t at;
} check_cases[] = {
    {"+@all", "PING", ACL_ALLOWED, 0},
    {"-@all", "PING", ACL_DENIED_COMMAND, 0},
    {"-@all", "AUTH x", ACL_ALLOWED, 0},
    {"+@read ~*", "BF.EXISTS f x", ACL_ALLOWED, 0},
    {"+@read ~*", "BF.ADD f x", ACL_DENIED_COMMAND, 0},
    {"+@bloom ~*", "BF.ADD f x", ACL_ALLOWED, 0},
    {"+@all", "BF.ADD f x", ACL_DENIED_KEY, 1},
    {"+@all ~f*", "BF.ADD f x", ACL_ALLOWED, 0},
    {"+@all ~f", "BF.ADD ff x", ACL_DENIED_KEY, 1},
    {"+@all %R~f*", "BF.EXISTS f x", ACL_ALLOWED, 0},
    {"+@all %R~f*", "BF.MADD f x y", ACL_DENIED_KEY, 1},
    {"+@all %W~f*", "BF.ADD f x", ACL_ALLOWED, 0},
    {"+@all %W~f*", "BF.EXISTS f x", ACL_DENIED_KEY, 1},
    {"+@all %R~f* %W~f*", "BF.ADD f x", ACL_ALLOWED, 0},
    {"+@all %R~s* %W~d*", "BF.MERGE d s", ACL_DENIED_KEY, 1},
    {"+@all %R~s* ~d*", "BF.MERGE d s1 s2", ACL_ALLOWED, 0},
    {"+@all %R~s* ~d*", "BF.MERGE d s1 x", ACL_DENIED_KEY, 3},
    {"+@all %R~s* %W~d*", "COPY s d", ACL_ALLOWED, 0},
    {"+@all %W~s* %W~d*", "COPY s d", ACL_DENIED_KEY, 1},
    {"+@all %R~s* %W~d*", "RENAME s d", ACL_DENIED_KEY, 1},
    {"+@all ~s* %W~d*", "RENAME s d", ACL_ALLOWED, 0},
    {"+@all ~a ~b", "DEL a b c", ACL_DENIED_KEY, 3},
    {"+@all %W~a", "EXISTS a", ACL_ALLOWED, 0},
    {"+@all %R~a*", "BF.FIND a* ITEMS x", ACL_ALLOWED, 0},
    {"+@all %R~a*", "BF.FIND COUNT a?b a[1-3]* ab ITEMS x", ACL_ALLOWED, 0},
    {"+@all %R~a*", "BF.FIND a* * ITEMS x", ACL_DENIED_KEY, 2},
    {"+@all %R~a?c", "BF.FIND a?c ITEMS x", ACL_ALLOWED, 0},
    {"+@all %R~a?c", "BF.FIND a?d ITEMS x", ACL_DENIED_KEY, 1},
    {"+@all %W~a*", "BF.FIND a* ITEMS x", ACL_DENIED_KEY, 1},
    {"+@all %R~[ab]*", "BF.FIND a* ITEMS x", ACL_DENIED_KEY, 1},
    {"+@all %R~m", "MEMORY USAGE m", ACL_ALLOWED, 0},
    {"+@all %R~m", "MEMORY USAGE n", ACL_DENIED_KEY, 2},
    {"+@all &c*", "PUBLISH c1 x", ACL_ALLOWED, 0},
    {"+@all &c*", "PUBLISH d x", ACL_DENIED_CHANNEL, 1},
    {"+@all &c*", "SUBSCRIBE c1 d", ACL_DENIED_CHANNEL, 2},
    {"+@all &c*", "SSUBSCRIBE c1 c2", ACL_ALLOWED, 0},
    {"+@all &c*", "SPUBLISH d x", ACL_DENIED_CHANNEL, 1},
    {"+@all &c*", "PSUBSCRIBE c1*", ACL_DENIED_CHANNEL, 1},
    {"+@all &c*", "PSUBSCRIBE c*", ACL_ALLOWED, 0},
    {"+@all", "UNSUBSCRIBE d", ACL_ALLOWED, 0},
    {"+select|0", "SELECT 0", ACL_ALLOWED, 0},
    {"+select|0", "SELECT 1", ACL_DENIED_COMMAND, 0},
    {"+@all -config|set", "CONFIG SET a b", ACL_DENIED_COMMAND, 0},
    {"+@all -config|set", "CONFIG GET a", ACL_ALLOWED, 0},
    {"+@slow -@dangerous", "CONFIG GET a", ACL_DENIED_COMMAND, 0},
    {"(~a +bf.add) (~b +bf.exists)", "BF.ADD a x", ACL_ALLOWED, 0},
    {"(~a +bf.add) (~b +bf.exists)", "BF.EXISTS b x", ACL_ALLOWED, 0},
    {"(~a +bf.add) (~b +bf.exists)", "BF.EXISTS a x", ACL_DENIED_KEY, 1},
    {"+bf.exists ~c (~a +bf.add)", "BF.DEBUG a", ACL_DENIED_COMMAND, 0},
    {"+del ~a (+del ~b)", "DEL a b", ACL_DENIED_KEY, 2},
};

Test(acl, commands_keys_and_channels_are_checked)
{
    for (size_t i = 0, at; i < sizeof(check_cases) / sizeof(check_cases[0]); i++) {
        const struct check_case *c = &check_cases[i];
        struct acl_user *user = user_with(c->rules);
        enum acl_verdict verdict = check(user, c->command, &at);
        cr_expect(verdict == c->verdict && at == c->at, "%s / %s: %d at %zu", c->rules, c->command, (int)verdict, at);
        acl_user_unref(user);
    }
}

/* The quick check of a command with one key allows what the whole one allows. */
Test(acl, one_key_is_checked_like_many)
{
    static const char *const users[] = {"+@all", "+@all ~*", "+@read ~a*", "+@all %R~a %W~b",
                                        "+bf.exists ~b (+bf.add ~a*)"};
    static const char *const commands[] = {"bf.exists", "bf.add"}, *const keys[] = {"", "a", "ab", "b"};
    for (size_t i = 0; i < sizeof(users) / sizeof(users[0]); i++) {
        struct acl_user *user = user_with(users[i]);
        for (size_t j = 0; j < 8; j++) {
            const struct command *row = command_find_full(slice_of(commands[j % 2]));
            struct slice key = slice_of(keys[j / 2]);
            struct resp_span spans[3] = {{0, 0}, {0, (uint32_t)key.len}, {0, 0}};
            struct resp_command args = {.base = key.ptr, .spans = spans, .argc = 3};
            size_t at;
            cr_expect_eq(acl_may_call(user, command_index(row), key),
                         acl_check(user, row, &args, 0, &at) == ACL_ALLOWED, "%s: %s %s", users[i], commands[j % 2],
                         keys[j / 2]);
        }
        acl_user_unref(user);
    }
}

/* A command with very many names, for a user with very many patterns, is refused: it would keep other clients waiting.
 */
Test(acl, a_check_has_bounded_work)
{
    enum { NAMES = 10000 };
    static struct resp_span spans[NAMES + 1];
    struct acl_user *many = user_with("+exists"), *few = user_with("+exists ~898 ~899");
    struct slice fault;
    for (int i = 0; i < 900; i++) {
        char rule[16];
        snprintf(rule, sizeof(rule), "~%d", i);
        cr_assert_eq(apply(many, rule, &fault), ACL_GOOD);
    }
    const struct command *row = command_find_full(slice_of("exists"));
    struct resp_command words = {"exists899", spans, NAMES + 1};
    size_t at;
    for (int i = 1; i <= NAMES; i++)
        spans[i] = (struct resp_span){6, 3};
    cr_expect_eq(acl_check(few, row, &words, 0, &at), ACL_ALLOWED);
    cr_expect_eq(acl_check(many, row, &words, 0, &at), ACL_DENIED_WORK);
    words.argc = 200;
    cr_expect_eq(acl_check(many, row, &words, 0, &at), ACL_ALLOWED);
    acl_user_unref(many);
    acl_user_unref(few);
}

Test(acl, a_user_has_at_most_64_passwords)
{
    struct slice fault;
    struct acl_user *user = acl_user_create((struct slice){"bob", 3}, false);
    uint8_t digest[ACL_DIGEST];
    for (int i = 0; i < ACL_MAX_PASSWORDS; i++) {
        char rule[16];
        snprintf(rule, sizeof(rule), ">%d", i);
        cr_assert_eq(apply(user, rule, &fault), ACL_GOOD);
    }
    cr_assert_eq(apply(user, ">more", &fault), ACL_FAULT_PASSWORDS);
    acl_password_digest(slice_of("63"), digest);
    cr_assert(acl_user_has_password(user, digest));
    cr_assert_not(acl_user_has_password(NULL, digest));
    cr_assert_eq(apply(user, "<63 >more", &fault), ACL_GOOD);
    cr_assert_not(acl_user_has_password(user, digest));
    acl_user_unref(user);
}

/* ---- the users of a server ---- */

static struct config config_of_users;
static _Atomic uint64_t bytes;
static struct buf scratch_of_users;

static struct acl *open_users(void)
{
    struct acl *acl;
    struct errbuf err;
    buf_init(&scratch_of_users, SIZE_MAX);
    cr_assert_eq(config_init(&config_of_users), 0);
    cr_assert_eq(acl_create(&acl, &config_of_users, &bytes, &err), CONFIG_OK);
    return acl;
}

static void close_users(struct acl *acl)
{
    acl_destroy(acl);
    buf_deinit(&scratch_of_users);
    config_deinit(&config_of_users);
}

static void change_bob(struct acl *acl, const char *rules)
{
    struct slice words[64], fault;
    cr_assert_eq(acl_change(acl, slice_of("bob"), words, split(rules, words), false, &scratch_of_users, &fault),
                 ACL_GOOD);
}

/* The memory of users is that of the users in force, after any additions and removals. */
Test(acl, users_in_force_are_counted)
{
    struct acl *acl = open_users();
    const char *file = "user bob +@read ~a-rather-long-pattern-of-names*";
    struct acl_list list;
    uint64_t before = bytes;
    change_bob(acl, "+@read ~a-rather-long-pattern-of-names*");
    uint64_t with_rules = bytes;
    cr_expect_geq(with_rules, before + sizeof(struct acl_user) + 32);
    cr_assert(acl_delete(acl, slice_of("bob")));
    cr_expect_eq(bytes, before);
    cr_assert_eq(acl_text_read("users.acl", slice_of(file), &config_of_users, &list, &scratch_of_users), CONFIG_OK);
    acl_replace_all(acl, &list);
    cr_expect_eq(bytes, with_rules);
    cr_assert(acl_delete(acl, slice_of("bob")));
    cr_expect_eq(bytes, before);
    close_users(acl);
}

/* ---- written and read ---- */

static const char *const some_rules[] = {
    "on",
    "off",
    "nopass",
    "resetpass",
    ">secret",
    ">other",
    "<secret",
    "reset",
    "sanitize-payload",
    "skip-sanitize-payload",
    "+@all",
    "-@all",
    "allkeys",
    "resetkeys",
    "allchannels",
    "resetchannels",
    "clearselectors",
    "+@read",
    "-@read",
    "+@write",
    "-@dangerous",
    "+@slow",
    "-@slow",
    "+@connection",
    "+@bloom",
    "-@bloom",
    "+bf.add",
    "-bf.add",
    "+bf.exists",
    "+config",
    "-config",
    "+config|get",
    "-config|set",
    "+select|0",
    "+select|X",
    "-select",
    "+client|id",
    "-client",
    "~a*",
    "~b",
    "%R~c*",
    "%W~c*",
    "%R~*",
    "%W~*",
    "%RW~*",
    "%R",
    "~",
    "&a*",
    "&b",
    "&*",
    "(~a +bf.add)",
    "(%R~* &x +@read -bf.info)",
    "(+@all ~*)",
    "(+select|1 ~q(x)",
    "(&* -@all)",
    "~x)",
    "+acl|whoami",
};

/* The text of a user makes the same user again, after any rules. */
Test(acl, the_text_of_a_user_makes_it_again)
{
    const char *seed = getenv("BLOOMERY_SEED");
    uint64_t first = seed ? strtoull(seed, NULL, 10) : 1;
    for (uint64_t n = first; n < first + 2000; n++) {
        struct rng rng;
        struct slice fault;
        struct buf line, errors;
        struct config config;
        struct acl_list list;
        struct acl_user *user = acl_user_create(slice_of("bob"), false);
        rng_init(&rng, n);
        for (size_t i = rng_below(&rng, 20); i > 0; i--)
            (void)apply(user, some_rules[rng_below(&rng, sizeof(some_rules) / sizeof(some_rules[0]))], &fault);
        char *text = described(user);
        buf_init(&line, SIZE_MAX);
        buf_init(&errors, SIZE_MAX);
        buf_appendf(&line, "user bob %s\n", text);
        cr_assert_eq(config_init(&config), 0);
        config.users.acl_pubsub_default = (int)(n & 1); /* a text does not depend on it */
        int status = acl_text_read("text", (struct slice){buf_head(&line), buf_len(&line)}, &config, &list, &errors);
        cr_assert_eq(status, CONFIG_OK, "seed %llu: %s: %.*s", (unsigned long long)n, text, (int)buf_len(&errors),
                     buf_head(&errors));
        cr_assert_eq(list.n, 2);
        char *again = described(list.users[0]);
        cr_assert_str_eq(again, text, "seed %llu", (unsigned long long)n);
        cr_assert_eq(list.users[0]->nselectors, user->nselectors);
        cr_assert_eq(list.users[0]->unrestricted, user->unrestricted);
        for (size_t i = 0; i < user->nselectors; i++)
            cr_assert_arr_eq(list.users[0]->selectors[i].allowed, user->selectors[i].allowed,
                             sizeof(user->selectors[i].allowed), "seed %llu: %s", (unsigned long long)n, text);
        acl_list_free(&list);
        config_deinit(&config);
        buf_deinit(&line);
        buf_deinit(&errors);
        free(again);
        free(text);
        acl_user_unref(user);
    }
}

/* The errors name all faults of a file by their lines, and no password. */
Test(acl, the_faults_of_a_file_have_lines)
{
    static const char text[] = "user alice on +@all ~*\n"
                               "user bob +nosuch\n"
                               "\r\n"
                               "alice on\n"
                               "user\n"
                               "user alice\n"
                               "user d (~a\n"
                               "user e <hidden\n";
    struct config config;
    struct acl_list list;
    struct buf errors;
    cr_assert_eq(config_init(&config), 0);
    buf_init(&errors, SIZE_MAX);
    cr_assert_eq(acl_text_read("f", slice_of(text), &config, &list, &errors), CONFIG_REFUSED);
    buf_append(&errors, "", 1);
    cr_expect_str_eq(buf_head(&errors),
                     "f:2: Error in applying operation '+nosuch': Unknown command or category name in ACL. "
                     "f:4 should start with user keyword followed by the username. "
                     "f:5 should start with user keyword followed by the username. "
                     "f:7: Unmatched parenthesis in selector definition. "
                     "f:8: Error in applying operation '<': The password you are trying to remove from the user does "
                     "not exist. "
                     "WARNING: Duplicate user 'alice' found on line 6. ");
    buf_deinit(&errors);
    config_deinit(&config);
}

/* Files of earlier versions still start. */
Test(acl, rules_for_commands_that_have_gone_have_no_effect)
{
    struct config config;
    struct acl_list list;
    struct buf errors;
    cr_assert_eq(config_init(&config), 0);
    buf_init(&errors, SIZE_MAX);
    cr_assert_eq(acl_text_read("f",
                               slice_of("user bob on nopass ~* -@all +MIGRATE +latency|graph -memory|purge +bf.add\n"),
                               &config, &list, &errors),
                 CONFIG_OK, "%s", buf_head(&errors));
    cr_assert_eq(list.n, 2);
    acl_list_free(&list);
    cr_assert_eq(acl_text_read("f", slice_of("user bob +latency|nosuch\n"), &config, &list, &errors), CONFIG_REFUSED);
    buf_deinit(&errors);
    config_deinit(&config);
}

/* The default user has the password of the settings unless the file states another one. */
Test(acl, a_file_without_default_leaves_him_his_password)
{
    struct config config;
    struct acl_list list;
    struct buf errors;
    cr_assert_eq(config_init(&config), 0);
    cr_assert_eq(config_set(&config, slice_of("requirepass"), slice_of("pw"), CONFIG_FILE, NULL), CONFIG_OK);
    buf_init(&errors, SIZE_MAX);
    cr_assert_eq(acl_text_read("f", slice_of("user zoe on\n"), &config, &list, &errors), CONFIG_OK);
    cr_assert_eq(list.n, 2);
    cr_expect_str_eq(list.users[0]->name, "default");
    cr_expect_eq(list.users[0]->npasswords, 1);
    cr_expect_eq(list.users[0]->flags & ACL_NOPASS, 0);
    acl_list_free(&list);
    cr_assert_eq(acl_text_read("f", slice_of("user default off\n"), &config, &list, &errors), CONFIG_OK);
    cr_expect_eq(list.n, 1);
    cr_expect_eq(list.users[0]->npasswords, 0);
    acl_list_free(&list);
    config_deinit(&config);
}
