/* advice_page: advice as sentences, and as a page in HTML that is complete in itself. Thread: one. */
#ifndef BLOOMERY_TOOL_ADVICE_PAGE_H
#define BLOOMERY_TOOL_ADVICE_PAGE_H

#include "advice.h"

#define ADVICE_NAME     256
#define ADVICE_SENTENCE 640

void advice_name(const struct advice_table *table, char out[ADVICE_NAME]); /* with its keyspace */
void advice_describe(const struct advice_change *change, char out[ADVICE_SENTENCE]);

/* 0 or -errno. */
int advice_write_page(int fd, const struct advice *advice, const struct advice_change *changes, size_t n);

#endif
