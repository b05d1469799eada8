/* node: whether a process uses the files of a directory, as a running database does. Thread: one. */
#ifndef BLOOMERY_TOOL_NODE_H
#define BLOOMERY_TOOL_NODE_H

#include <stdbool.h>

#include "errbuf.h"

/* Looks through the open and mapped files of all processes that this user may check (/proc). True with the reason in
 * `err`: one of them has a file of the directory open, the files of a process named java or scylla cannot be read, or
 * the check is impossible. */
bool node_may_use(const char *directory, struct errbuf *err);

#endif
