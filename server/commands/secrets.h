/* secrets: the words of a command that must stay hidden from others, such as passwords. MONITOR and the slow log, which
 * is also on the status page, show commands through this.
 *
 * A row says where its secrets are. In doubt a word is hidden: a password with a space adds extra words after AUTH, and
 * a misspelt setting or option of HELLO may be one with a password.
 *
 * Thread: any. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "command_row.h"
#include "resp_parse.h"

/* A reading of one command, word by word. */
struct secrets {
    const struct resp_command *words;
    enum command_secrets kind;
    size_t first; /* the word with the command's name: another one than 0 for a command in a command (ACL DRYRUN) */
    size_t names; /* words of its name */
};

/* `row`: of the command; NULL: it has no secrets. The words must stay as they are meanwhile. */
void secrets_begin(struct secrets *secrets, const struct command *row, const struct resp_command *words);

/* Word number i as others may read it. To be called for 0, 1, 2 and so on in turn. */
struct slice secrets_word(struct secrets *secrets, size_t i);
