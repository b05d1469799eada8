/* acl_internal: shared by the files of acl.h only. */
#pragma once

#include <sys/queue.h>

#include "acl.h"
#include "lock.h"

struct acl_entry;

/* Under the lock of its acl. */
struct acl_log {
    TAILQ_HEAD(acl_entries, acl_entry) entries; /* the newest first */
    size_t n;
    uint64_t next_id; /* of the next entry; never reset */
    _Atomic uint64_t counts[ACL_DENIED_CHANNEL + 1];
};

struct acl {
    struct lock lock;      /* of the users and of the log */
    struct acl_list users; /* sorted by name */
    size_t size;           /* of that array */
    _Atomic uint64_t *bytes;
    struct acl_log log;
};

void acl_log_deinit(struct acl_log *log);

/* The default user at first: it may do everything; with the password if that is not "". NULL without memory. */
struct acl_user *acl_first_default(struct slice requirepass);
