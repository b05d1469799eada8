/* Index.db of any bytes, in both forms: keys lie one behind the other in the file, and it ends or is damaged. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"
#include "sstable_keys.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The first byte chooses the form. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = {"nb-1-big-Index.db", "ks-t-ka-1-Index.db"};
    struct sstable_name name;
    struct sstable_keys keys;
    struct errbuf err = {""};
    const unsigned char *key;
    uint64_t sum = 0;
    char path[64];
    size_t len;
    int rc, fd = memfd_create("index", MFD_CLOEXEC);

    if (size == 0 || fd < 0) {
        CHECK(fd >= 0 && close(fd) == 0);
        return 0;
    }
    CHECK(fs_write_all(fsops_posix(), fd, data + 1, size - 1, 0) == 0);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    CHECK(sstable_name_parse(names[data[0] % 2], &name, NULL) == SSTABLE_OK);
    CHECK(sstable_keys_open(&keys, fsops_posix(), path, &name) == 0);
    while ((rc = sstable_keys_next(&keys, &key, &len, &err)) == SSTABLE_KEYS_ONE) {
        CHECK(keys.entry + 2 + len <= size - 1 && memcmp(key, data + 1 + keys.entry + 2, len) == 0);
        sum += 2 + len;
        CHECK(sum <= size - 1);
    }
    CHECK(rc == (err.text[0] ? SSTABLE_KEYS_DAMAGED : SSTABLE_KEYS_END));
    sstable_keys_close(&keys);
    close(fd);
    return 0;
}
