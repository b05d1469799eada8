/* log_append: a frame of which the payload is in one piece. */
#pragma once

#include "log_writer.h"

static inline int log_append(struct log_writer *writer, bool has_controls, const struct log_bytes *payload,
                             struct errbuf *err)
{
    int rc = log_writer_is_due(writer) ? log_writer_sync(writer, err) : 0;

    if (rc == 0)
        rc = log_writer_begin(writer, has_controls, payload->len, err);
    if (rc == 0)
        rc = log_writer_put(writer, payload->ptr, payload->len, err);
    return rc == 0 ? log_writer_end(writer, err) : rc;
}
