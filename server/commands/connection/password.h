/* password: comparison of what a client has sent with a password of the settings. Thread: any. */
#ifndef BLOOMERY_PASSWORD_H
#define BLOOMERY_PASSWORD_H

#include <stdbool.h>
#include <string.h>

#include "resp_parse.h"

/* Takes a time that depends on what the client sent only: neither the length of the password nor how much of it is
 * right can be measured. */
static inline bool password_equal(const char *password, struct slice given)
{
    size_t len = strlen(password);
    volatile unsigned char difference = len != given.len;

    for (size_t i = 0, j = 0; i < given.len; i++) {
        difference |= (unsigned char)(password[j] ^ given.ptr[i]);
        j = j + 1 < len ? j + 1 : 0;
    }
    return difference == 0;
}

#endif
