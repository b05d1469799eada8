#include "secrets.h"

#include <string.h>

#include "bloom_params.h"
#include "command.h"
#include "config.h"

void secrets_begin(struct secrets *secrets, const struct command *row, const struct resp_command *words)
{
    *secrets = (struct secrets){.words = words};
    while (row) {
        secrets->kind = row->flags & CMD_MODULE ? SECRETS_OF_SEED : row->secrets;
        secrets->names = strchr(row->full_name, '|') ? 2 : 1;
        if (secrets->kind != SECRETS_OF_CALL && secrets->kind != SECRETS_OF_CALL_BY_USER)
            return;
        secrets->first += secrets->names + (secrets->kind == SECRETS_OF_CALL_BY_USER);
        row = secrets->first < words->argc ? command_find_called(words, secrets->first) : NULL;
        secrets->kind = SECRETS_ALL; /* the secrets of an unknown command are unknown */
        secrets->names = 1;
    }
}

/* CONFIG SET name value name value ... Parts of a password with a space in it may be in the places of names. */
static bool is_of_settings(const struct secrets *secrets, size_t at, size_t i)
{
    const struct config_row *before = at > 2 ? config_find(resp_arg(secrets->words, i - 1)) : NULL;
    if (at % 2 == 1 || before)
        return !before || before->flags & CONFIG_SECRET || before->type == CONFIG_USERS;
    return at > 2 && !config_find(resp_arg(secrets->words, i));
}

static bool is_secret(struct secrets *secrets, size_t i)
{
    size_t at = i - secrets->first;
    if (i < secrets->first + secrets->names)
        return false;
    switch (secrets->kind) {
    case SECRETS_ALL:
        return true;
    case SECRETS_OF_HELLO: /* all behind the version but AUTH: a password may follow a mistyped word */
        return at > 2 || (at == 2 && !slice_is(resp_arg(secrets->words, i), "AUTH"));
    case SECRETS_OF_SETTINGS:
        return is_of_settings(secrets, at, i);
    case SECRETS_OF_SEED:
        return resp_arg(secrets->words, i).len == BLOOM_SEED_BYTES && slice_is(resp_arg(secrets->words, i - 1), "SEED");
    case SECRETS_NONE:
    case SECRETS_OF_CALL:
    case SECRETS_OF_CALL_BY_USER:
        break;
    }
    return false;
}

struct slice secrets_word(struct secrets *secrets, size_t i)
{
    static const struct slice redacted = {"(redacted)", sizeof("(redacted)") - 1};
    return is_secret(secrets, i) ? redacted : resp_arg(secrets->words, i);
}
