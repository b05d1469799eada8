#include "pieces.h"

#include <errno.h>
#include <xxhash.h>

#include "fsops.h"

int file_pieces(const char *path, piece_fn *take, void *ctx, uint64_t *size_out, uint64_t *xxh3_out)
{
    static unsigned char piece[1u << 20];
    const struct fsops *fs = fsops_posix();
    XXH3_state_t *hash = XXH3_createState();
    uint64_t at = 0;
    size_t n = 1;
    int fd = -1;
    int rc = hash ? fs->open(fs->ctx, path, FS_READ, &fd) : -ENOMEM;

    if (rc == 0)
        XXH3_64bits_reset(hash);
    while (rc == 0 && n > 0) {
        rc = fs->pread(fs->ctx, fd, piece, sizeof(piece), at, &n);
        if (rc == 0 && n > 0)
            rc = take(ctx, piece, n, at);
        if (rc == 0)
            XXH3_64bits_update(hash, piece, n);
        at += n;
    }
    if (rc == 0) {
        *size_out = at;
        *xxh3_out = XXH3_64bits_digest(hash);
    }
    if (fd >= 0)
        fs->close(fs->ctx, fd);
    XXH3_freeState(hash);
    return rc;
}
